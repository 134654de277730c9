"""Everything that writes deployments; views, the REST API and apps above call these functions."""

"""Everything that writes the inventory; views, the REST API and other apps call these functions."""

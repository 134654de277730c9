"""The addresses of the site's pages, with ids of rows by the words of `site_world`."""

PAGES = (
    "/", "/clusters/", "/clusters/new", "/clusters/import", "/clusters/{cluster}/",
    "/clusters/{cluster}/edit", "/clusters/{spare}/delete",
    "/clusters/{cluster}/coordinators/{front}/delete", "/clusters/{cluster}/network/",
    "/clusters/{cluster}/network/?show=latency", "/clusters/{cluster}/links/new",
    "/clusters/{spare}/links/{spare_link}/edit", "/clusters/{spare}/links/{spare_link}/delete",
    "/clusters/{cluster}/region-links/new",
    "/clusters/{spare}/region-links/{spare_region_link}/edit",
    "/clusters/{spare}/region-links/{spare_region_link}/delete",
    "/clusters/{spare}/network/", "/clusters/{cluster}/shared-bandwidths/new",
    "/clusters/{spare}/shared-bandwidths/{shared}/edit",
    "/clusters/{spare}/shared-bandwidths/{shared}/delete", "/clusters/{cluster}/profiles/new",
    "/clusters/{cluster}/profiles/estimate",
    "/clusters/{spare}/profiles/{spare_profile}/delete", "/nodes/", "/nodes/?q=nobody",
    "/clusters/{cluster}/nodes/new", "/clusters/{cluster}/nodes/{node}/",
    "/clusters/{spare}/nodes/{spare_node}/", "/clusters/{cluster}/nodes/{node}/edit",
    "/clusters/{cluster}/nodes/{node}/delete", "/models/", "/models/new", "/models/{model}/",
    "/models/{own_model}/", "/models/{model}/edit", "/models/{model}/delete", "/profiles/",
    "/profiles/{profile}/", "/profiles/import", "/changes/", "/plans/", "/plans/new",
    "/plans/{run}/",
    "/plans/{running}/", "/plans/{replan_run}/", "/plans/{run}/incumbents/{incumbent}/",
    "/plans/by-id/{plan}/what-if", "/plans/by-id/{plan}/replan",
    "/plans/compare?plan={plan}&plan={second_plan}", "/plans/mixes/new/{cluster}",
    "/plans/mixes/{mix}/", "/deployments/", "/deployments/new?plan={plan}",
    "/deployments/{deployment}/", "/deployments/{deployment}/predictions/",
    "/deployments/{failing}/", "/plans/{instances_run}/", "/deployments/{instances}/",
    "/clusters/{instances_cluster}/nodes/{instances_node}/", "/monitor/?cluster={cluster}&range=1h",
    "/requests/", "/requests/{request}/", "/playground/", "/settings/", "/settings/users/",
    "/settings/api-keys/", "/settings/join-tokens/", "/settings/jobs/", "/settings/about/",
)  # fmt: skip
# On the day the site is new: what says that there is nothing yet, and what to do.
EMPTY = (
    "/", "/clusters/", "/nodes/", "/models/", "/profiles/", "/changes/", "/plans/", "/plans/new",
    "/deployments/", "/monitor/", "/requests/", "/playground/", "/settings/api-keys/",
    "/settings/join-tokens/", "/settings/jobs/",
)  # fmt: skip

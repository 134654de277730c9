"""Pages of deployment."""

from django.urls import path

from helixweb.deployment import (
    drain_pages,
    link_pages,
    node_log_page,
    profiling_pages,
    repair_pages,
    views,
)

urlpatterns = [
    path("deployments/", views.deployments, name="deployments"),
    path("deployments/new", views.deployment_new, name="deployment-new"),
    path("deployments/<int:pk>/", views.deployment, name="deployment"),
    path("deployments/<int:pk>/stop", views.deployment_stop, name="deployment-stop"),
    path("deployments/<int:pk>/roll-back", views.deployment_roll_back, name="deployment-roll-back"),
    path("deployments/<int:pk>/pause", views.deployment_pause, name="deployment-pause"),
    path("deployments/<int:pk>/resume", views.deployment_resume, name="deployment-resume"),
    path("deployments/<int:pk>/weights", link_pages.deployment_weights, name="deployment-weights"),
    path("repairs/<int:pk>/deploy", repair_pages.repair_deploy, name="repair-deploy"),
    path("repairs/<int:pk>/dismiss", repair_pages.repair_dismiss, name="repair-dismiss"),
    path("clusters/<int:pk>/nodes/<int:node_pk>/drain", drain_pages.node_drain, name="node-drain"),
    path(
        "clusters/<int:pk>/nodes/<int:node_pk>/take-in",
        drain_pages.node_take_in,
        name="node-take-in",
    ),
    path(
        "clusters/<int:pk>/nodes/<int:node_pk>/measure",
        profiling_pages.node_measure,
        name="node-measure",
    ),
    path(
        "clusters/<int:pk>/nodes/<int:node_pk>/measure/cancel",
        profiling_pages.node_measure_cancel,
        name="node-measure-cancel",
    ),
    path("clusters/<int:pk>/measure", profiling_pages.cluster_measure, name="cluster-measure"),
    path("clusters/<int:pk>/nodes/<int:node_pk>/log", node_log_page.node_log, name="node-log"),
    path(
        "clusters/<int:pk>/network/keep-measured",
        link_pages.links_keep_measured,
        name="links-keep-measured",
    ),
]

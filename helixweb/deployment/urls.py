"""Pages of deployment."""

from django.urls import path

from helixweb.deployment import views

_NODE = "clusters/<int:pk>/nodes/<int:node_pk>/"

urlpatterns = [
    path("deployments/", views.deployments, name="deployments"),
    path("deployments/new", views.deployment_new, name="deployment-new"),
    path("deployments/<int:pk>/", views.deployment, name="deployment"),
    path("deployments/<int:pk>/stop", views.deployment_stop, name="deployment-stop"),
    path("deployments/<int:pk>/roll-back", views.deployment_roll_back, name="deployment-roll-back"),
    path("deployments/<int:pk>/pause", views.deployment_pause, name="deployment-pause"),
    path("deployments/<int:pk>/resume", views.deployment_resume, name="deployment-resume"),
    path("deployments/<int:pk>/weights", views.deployment_weights, name="deployment-weights"),
    path("repairs/<int:pk>/deploy", views.repair_deploy, name="repair-deploy"),
    path("repairs/<int:pk>/dismiss", views.repair_dismiss, name="repair-dismiss"),
    path(f"{_NODE}drain", views.node_drain, name="node-drain"),
    path(f"{_NODE}take-in", views.node_take_in, name="node-take-in"),
    path(f"{_NODE}measure", views.node_measure, name="node-measure"),
    path(f"{_NODE}measure/cancel", views.node_measure_cancel, name="node-measure-cancel"),
    path(f"{_NODE}log", views.node_log, name="node-log"),
    path("clusters/<int:pk>/measure", views.cluster_measure, name="cluster-measure"),
    path(
        "clusters/<int:pk>/network/keep-measured",
        views.links_keep_measured,
        name="links-keep-measured",
    ),
]

"""URLs of deployment under /api/v1/: deployments for people, doors for agents and coordinators."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from helixweb.deployment import api, process_api
from helixweb.deployment.site_weights import SiteWeightsView

router = SimpleRouter()
router.register("deployments", api.DeploymentViewSet, basename="api-deployment")
router.register("drains", api.DrainViewSet, basename="api-drain")
router.register("profilings", api.ProfilingViewSet, basename="api-profiling")
router.register("repairs", api.RepairViewSet, basename="api-repair")

urlpatterns = [
    path("agent/register", process_api.RegisterView.as_view(), name="agent-register"),
    path("agent/identity", process_api.IdentityView.as_view(), name="agent-identity"),
    path("agent/desired", process_api.AgentDesiredView.as_view(), name="agent-desired"),
    path("agent/heartbeat", process_api.HeartbeatView.as_view(), name="agent-heartbeat"),
    path("agent/log", process_api.LogView.as_view(), name="agent-log"),
    path(
        "agent/weights/<path:model>/resolve/<str:revision>/<str:file>",
        SiteWeightsView.as_view(),
        name="agent-weights",
    ),
    path("agent/weight-peers", process_api.WeightPeersView.as_view(), name="agent-weight-peers"),
    path("agent/stream", process_api.AgentStreamView.as_view(), name="agent-stream"),
    path(
        "coordinator/desired",
        process_api.CoordinatorDesiredView.as_view(),
        name="coordinator-desired",
    ),
    path("coordinator/report", process_api.ReportView.as_view(), name="coordinator-report"),
    path(
        "coordinator/stream",
        process_api.CoordinatorStreamView.as_view(),
        name="coordinator-stream",
    ),
    path("deployments/<int:pk>/links/", api.LinksAtWorkView.as_view(), name="api-links-at-work"),
    path("deployments/<int:pk>/weights/", api.WeightsView.as_view(), name="api-link-weights"),
    path(
        "clusters/<int:pk>/keep-measured-links/",
        api.KeepMeasuredView.as_view(),
        name="api-keep-measured-links",
    ),
    path("clusters/<int:pk>/measure/", api.MeasureView.as_view(), name="api-cluster-measure"),
    path("nodes/<int:pk>/log", api.NodeLogView.as_view(), name="api-node-log"),
    path("", include(router.urls)),
]

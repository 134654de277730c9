"""URLs of deployment under /api/v1/: for people, and for agents and coordinators."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from helixweb.deployment import api, process_api
from helixweb.deployment.site_weights import SiteWeightsView

router = SimpleRouter()
router.register("deployments", api.DeploymentViewSet, basename="api-deployment")
router.register("drains", api.DrainViewSet, basename="api-drain")
router.register("profilings", api.ProfilingViewSet, basename="api-profiling")
router.register("repairs", api.RepairViewSet, basename="api-repair")

# The name of each is its path with dashes.
_PROCESSES = {
    "agent/register": process_api.RegisterView,
    "agent/identity": process_api.IdentityView,
    "agent/desired": process_api.AgentDesiredView,
    "agent/heartbeat": process_api.HeartbeatView,
    "agent/log": process_api.LogView,
    "agent/weight-peers": process_api.WeightPeersView,
    "agent/stream": process_api.AgentStreamView,
    "coordinator/desired": process_api.CoordinatorDesiredView,
    "coordinator/report": process_api.ReportView,
    "coordinator/stream": process_api.CoordinatorStreamView,
}
_WEIGHTS = "agent/weights/<path:model>/resolve/<str:revision>/<str:file>"
_PEOPLE = {
    "deployments/<int:pk>/links/": (api.LinksAtWorkView, "links-at-work"),
    "deployments/<int:pk>/weights/": (api.WeightsView, "link-weights"),
    "clusters/<int:pk>/keep-measured-links/": (api.KeepMeasuredView, "keep-measured-links"),
    "clusters/<int:pk>/measure/": (api.MeasureView, "cluster-measure"),
    "nodes/<int:pk>/log": (api.NodeLogView, "node-log"),
}

urlpatterns = [
    *(path(at, view.as_view(), name=at.replace("/", "-")) for at, view in _PROCESSES.items()),
    path(_WEIGHTS, SiteWeightsView.as_view(), name="agent-weights"),
    *(path(at, view.as_view(), name=f"api-{name}") for at, (view, name) in _PEOPLE.items()),
    path("", include(router.urls)),
]

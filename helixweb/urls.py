"""The URL map: pages at the root, the REST API under /api/v1."""

from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from helixweb.access import api as access
from helixweb.access.events_api import EventsView
from helixweb.access.mcp import McpView
from helixweb.access.needs import OWN, VIEWER, needs
from helixweb.alerting import api as alerting
from helixweb.common.api import UnknownAddressView
from helixweb.common.rest.docs import api_docs
from helixweb.deployment import api as deployment
from helixweb.deployment import process_api
from helixweb.deployment.process_api import SiteWeightsView
from helixweb.inventory import api as inventory
from helixweb.inventory.as_code.api import ExportView, ImportView
from helixweb.monitoring import api as monitoring
from helixweb.monitoring.api import TracedRequestViewSet
from helixweb.operations import views as operations
from helixweb.planning import api as planning

handler500 = "helixweb.common.database_away.answer_fault"
APPS = ("deployment", "access", "inventory", "planning", "monitoring", "alerting")

# Of agents and coordinators; the name of each is its path with dashes.
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

_COLLECTIONS = SimpleRouter()
_COLLECTIONS.register("deployments", deployment.DeploymentViewSet, "api-deployment")
_COLLECTIONS.register("drains", deployment.DrainViewSet, "api-drain")
_COLLECTIONS.register("profilings", deployment.ProfilingViewSet, "api-profiling")
_COLLECTIONS.register("repairs", deployment.RepairViewSet, "api-repair")
_COLLECTIONS.register("users", access.UserViewSet, "api-user")
_COLLECTIONS.register("groups", access.GroupViewSet, "api-group")
_COLLECTIONS.register("grants", access.GrantViewSet, "api-grant")
_COLLECTIONS.register("api-keys", access.ApiKeyViewSet, "api-key")
_COLLECTIONS.register("sessions", access.SessionViewSet, "api-session")
_COLLECTIONS.register("clusters", inventory.ClusterViewSet, "api-cluster")
_COLLECTIONS.register("nodes", inventory.NodeViewSet, "api-node")
_COLLECTIONS.register("changes", inventory.ChangeViewSet, "api-change")
_COLLECTIONS.register("coordinators", inventory.CoordinatorViewSet, "api-coordinator")
_COLLECTIONS.register("links", inventory.LinkViewSet, "api-link")
_COLLECTIONS.register("region-links", inventory.RegionLinkViewSet, "api-region-link")
_COLLECTIONS.register("shared-bandwidths", inventory.SharedBandwidthViewSet, "api-shared-bandwidth")
_COLLECTIONS.register("models", inventory.LanguageModelViewSet, "api-model")
_COLLECTIONS.register("profiles", inventory.ProfileViewSet, "api-profile")
_COLLECTIONS.register("profile-versions", inventory.ProfileVersionViewSet, "api-profile-version")
_COLLECTIONS.register("join-tokens", inventory.JoinTokenViewSet, "api-join-token")
_COLLECTIONS.register("plan-runs", planning.PlanRunViewSet, "api-plan-run")
_COLLECTIONS.register("model-mixes", planning.ModelMixViewSet, "api-model-mix")
_COLLECTIONS.register("simulations", planning.SimulationViewSet, "api-simulation")
_COLLECTIONS.register("plans", planning.PlanViewSet, "api-plan")
_COLLECTIONS.register("requests", TracedRequestViewSet, "api-request")
_COLLECTIONS.register("alerts", alerting.AlertViewSet, "api-alert")
_COLLECTIONS.register("alert-rules", alerting.RuleViewSet, "api-alert-rule")
_COLLECTIONS.register("alert-channels", alerting.ChannelViewSet, "api-alert-channel")
_COLLECTIONS.register("alert-silences", alerting.SilenceViewSet, "api-alert-silence")
_COLLECTIONS.register("alert-deliveries", alerting.DeliveryViewSet, "api-alert-delivery")

_VIEWS = {
    "deployments/<int:pk>/links/": (deployment.LinksAtWorkView, "links-at-work"),
    "deployments/<int:pk>/weights/": (deployment.WeightsView, "link-weights"),
    "clusters/<int:pk>/keep-measured-links/": (deployment.KeepMeasuredView, "keep-measured-links"),
    "clusters/<int:pk>/measure/": (deployment.MeasureView, "cluster-measure"),
    "nodes/<int:pk>/log": (deployment.NodeLogView, "node-log"),
    "events/": (EventsView, "events"),
    "me/": (access.MeView, "me"),
    "mcp/": (McpView, "mcp"),
    "export/": (ExportView, "export"),
    "import/": (ImportView, "import"),
    "clusters/<int:pk>/metrics/": (monitoring.SeriesView, "cluster-metrics"),
    "clusters/<int:pk>/bottleneck/": (monitoring.BottleneckView, "bottleneck"),
    "deployments/<int:pk>/predictions/": (monitoring.PredictionsView, "predictions"),
    "metrics/latest/": (monitoring.LatestView, "metrics-latest"),
}

# Most requests are of agents; each pattern before theirs is tried.
_API: list[URLResolver | URLPattern] = [
    *(path(at, view.as_view(), name=at.replace("/", "-")) for at, view in _PROCESSES.items()),
    path(_WEIGHTS, SiteWeightsView.as_view(), name="agent-weights"),
    *(path(at, view.as_view(), name=f"api-{name}") for at, (view, name) in _VIEWS.items()),
    *_COLLECTIONS.urls,
    re_path("", needs(VIEWER, VIEWER)(UnknownAddressView).as_view(), name="api-unknown"),
]

urlpatterns = [
    path("api/v1/", include(_API)),
    path("", include("helixweb.common.urls")),
    path("readyz", operations.readyz, name="readyz"),
    path("metrics", operations.MetricsView.as_view(), name="metrics"),
    path("join.sh", operations.join_script, name="join-script"),
    path("join/helixweb.tar.gz", operations.join_source, name="join-source"),
    *(path("", include(f"helixweb.{app}.urls")) for app in APPS),
    path("api/docs/", needs(OWN)(api_docs), name="api-docs"),
    path("api/schema/", needs(OWN)(SpectacularAPIView.as_view()), name="schema"),
]

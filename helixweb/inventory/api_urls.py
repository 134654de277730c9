"""REST URLs of the inventory, under /api/v1/."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from helixweb.inventory import api
from helixweb.inventory.as_code.api import ExportView, ImportView

router = SimpleRouter()
router.register("clusters", api.ClusterViewSet, "api-cluster")
router.register("nodes", api.NodeViewSet, "api-node")
router.register("changes", api.ChangeViewSet, "api-change")
router.register("coordinators", api.CoordinatorViewSet, "api-coordinator")
router.register("links", api.LinkViewSet, "api-link")
router.register("region-links", api.RegionLinkViewSet, "api-region-link")
router.register("shared-bandwidths", api.SharedBandwidthViewSet, "api-shared-bandwidth")
router.register("models", api.LanguageModelViewSet, "api-model")
router.register("profiles", api.ProfileViewSet, "api-profile")
router.register("profile-versions", api.ProfileVersionViewSet, "api-profile-version")
router.register("join-tokens", api.JoinTokenViewSet, "api-join-token")

urlpatterns = [
    *router.urls,
    path("export/", ExportView.as_view(), name="api-export"),
    path("import/", ImportView.as_view(), name="api-import"),
]

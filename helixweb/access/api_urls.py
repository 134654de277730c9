"""REST URLs of who may do what, under /api/v1/."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from helixweb.access import api
from helixweb.access.events_api import EventsView
from helixweb.access.mcp import McpView

router = SimpleRouter()
router.register("users", api.UserViewSet, "api-user")
router.register("groups", api.GroupViewSet, "api-group")
router.register("grants", api.GrantViewSet, "api-grant")
router.register("api-keys", api.ApiKeyViewSet, "api-key")
router.register("sessions", api.SessionViewSet, "api-session")

urlpatterns = [
    *router.urls,
    path("events/", EventsView.as_view(), name="api-events"),
    path("me/", api.MeView.as_view(), name="api-me"),
    path("mcp/", McpView.as_view(), name="api-mcp"),
]

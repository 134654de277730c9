"""URLs of monitoring under /api/v1/."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from helixweb.monitoring import api
from helixweb.monitoring.request_api import TracedRequestViewSet

router = SimpleRouter()
router.register("requests", TracedRequestViewSet, basename="api-request")

urlpatterns = [
    *router.urls,
    path("clusters/<int:pk>/metrics/", api.SeriesView.as_view(), name="api-cluster-metrics"),
    path("clusters/<int:pk>/bottleneck/", api.BottleneckView.as_view(), name="api-bottleneck"),
    path(
        "deployments/<int:pk>/predictions/",
        api.PredictionsView.as_view(),
        name="api-predictions",
    ),
    path("metrics/latest/", api.LatestView.as_view(), name="api-metrics-latest"),
]

"""URLs of monitoring under /api/v1/."""

from django.urls import path

from helixweb.monitoring import api

urlpatterns = [
    path("clusters/<int:pk>/metrics/", api.SeriesView.as_view(), name="api-cluster-metrics"),
    path("metrics/latest/", api.LatestView.as_view(), name="api-metrics-latest"),
]

"""Pages of monitoring."""

from django.urls import path, re_path

from helixweb.monitoring import request_pages, views

urlpatterns = [
    path("", views.overview, name="overview"),
    path("monitor/", views.monitor, name="monitor"),
    re_path(
        r"^monitor/chart/(?P<name>heat|flow-measured|flow-load)/$",
        views.monitor_chart,
        name="monitor-chart",
    ),
    path("deployments/<int:pk>/predictions/", views.predictions, name="predictions"),
    path("requests/", request_pages.requests, name="requests"),
    path("requests/<slug:number>/", request_pages.traced_request, name="request"),
    path("playground/", views.playground, name="playground"),
    path("playground/chat", views.playground_chat, name="playground-chat"),
]

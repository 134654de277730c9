"""Pages of monitoring."""

from django.urls import path

from helixweb.monitoring import request_pages, views

urlpatterns = [
    path("", views.overview, name="overview"),
    path("monitor/", views.monitor, name="monitor"),
    path("requests/", request_pages.requests, name="requests"),
    path("requests/<slug:number>/", request_pages.traced_request, name="request"),
    path("playground/", views.playground, name="playground"),
    path("playground/chat", views.playground_chat, name="playground-chat"),
]

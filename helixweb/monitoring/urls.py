"""Pages of monitoring."""

from django.urls import path

from helixweb.monitoring import views

urlpatterns = [
    path("", views.overview, name="overview"),
    path("monitor/", views.monitor, name="monitor"),
    path("playground/", views.playground, name="playground"),
    path("playground/chat", views.playground_chat, name="playground-chat"),
]

"""Pages of operations."""

from django.urls import path

from helixweb.operations import views
from helixweb.operations.views import MetricsView

urlpatterns = [
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("readyz", views.readyz, name="readyz"),
    path("join.sh", views.join_script, name="join-script"),
    path("join/helixweb.tar.gz", views.join_source, name="join-source"),
]

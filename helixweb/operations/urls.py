"""Pages of operations."""

from django.urls import path

from helixweb.operations import views

urlpatterns = [path("readyz", views.readyz, name="readyz")]

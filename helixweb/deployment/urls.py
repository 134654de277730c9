"""Pages of deployment."""

from django.urls import path

from helixweb.deployment import views

urlpatterns = [
    path("deployments/", views.deployments, name="deployments"),
    path("deployments/new", views.deployment_new, name="deployment-new"),
    path("deployments/<int:pk>/", views.deployment, name="deployment"),
    path("deployments/<int:pk>/stop", views.deployment_stop, name="deployment-stop"),
]

"""Pages that ask for no login."""

from django.urls import path

from helixweb.common import views

urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("login/link/<str:token>/", views.login_link, name="login-link"),
]

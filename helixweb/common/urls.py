"""Pages of no app in particular."""

from django.contrib.auth import views as auth_views
from django.urls import path

from helixweb.common import views

urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("texts.js", views.texts, name="texts"),
    path("login/link/<str:token>/", views.login_link, name="login-link"),
    path("logout/", auth_views.LogoutView.as_view(), name="logout"),
    path("settings/", views.preferences, name="settings"),
]

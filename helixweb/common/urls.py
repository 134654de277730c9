"""Pages of no app in particular."""

from django.contrib.auth import views as auth_views
from django.urls import path

from helixweb.common import people_views, views
from helixweb.common.forms import LoginForm
from helixweb.common.metrics_view import MetricsView

urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("events", views.events, name="events"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("texts.js", views.texts, name="texts"),
    path("login/", auth_views.LoginView.as_view(authentication_form=LoginForm), name="login"),
    path("login/link/<str:token>/", views.login_link, name="login-link"),
    path("logout/", auth_views.LogoutView.as_view(), name="logout"),
    path("settings/", views.preferences, name="settings"),
    path("settings/users/", people_views.users, name="users"),
    path("settings/users/<int:pk>/keep-out", people_views.keep_out, name="user-keep-out"),
    path("settings/users/<int:pk>/let-in", people_views.let_in, name="user-let-in"),
    path("settings/api-keys/", views.api_keys, name="api-keys"),
    path("settings/api-keys/<int:pk>/revoke", views.revoke_api_key, name="api-key-revoke"),
]

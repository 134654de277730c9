"""Pages of who may do what."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from helixweb.access import group_views, key_views, people_views, sso_views, views
from helixweb.access.login import PasswordLogin
from helixweb.access.needs import OWN, needs
from helixweb.common.views import preferences, texts

urlpatterns = [
    path("login/", PasswordLogin.as_view(), name="login"),
    path("login/sso/", sso_views.begin, name="sso-begin"),
    path("login/sso/callback/", sso_views.callback, name="sso-callback"),
    path("logout/", needs(change=OWN)(LogoutView.as_view()), name="logout"),
    path("settings/", needs(OWN, OWN)(preferences), name="settings"),
    path("texts.js", needs(OWN)(texts), name="texts"),
    path("events", views.events, name="events"),
    path("settings/users/", people_views.users, name="users"),
    path("settings/users/<int:pk>/", people_views.user, name="user"),
    path("settings/users/<int:pk>/keep-out", people_views.keep_out, name="user-keep-out"),
    path("settings/users/<int:pk>/let-in", people_views.let_in, name="user-let-in"),
    path("settings/users/<int:pk>/log-out", people_views.log_out_everywhere, name="user-log-out"),
    path("settings/grants/<int:pk>/withdraw", people_views.withdraw, name="grant-withdraw"),
    path("settings/groups/", group_views.groups, name="groups"),
    path("settings/groups/<int:pk>/", group_views.group, name="group"),
    path("settings/groups/<int:pk>/delete", group_views.group_delete, name="group-delete"),
    path("clusters/<int:pk>/access/", group_views.cluster_access, name="cluster-access"),
    path("settings/api-keys/", key_views.api_keys, name="api-keys"),
    path("settings/api-keys/<int:pk>/revoke", key_views.revoke_api_key, name="api-key-revoke"),
    path("settings/sessions/", key_views.log_ins, name="sessions"),
    path("settings/sessions/end", key_views.log_ins_end, name="sessions-end"),
    path("settings/sessions/<int:pk>/end", key_views.log_in_end, name="session-end"),
]

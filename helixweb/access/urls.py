"""Pages of who may do what."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from helixweb.access import group_pages, key_pages, people_pages, sso_pages, views
from helixweb.access.login import PasswordLogin
from helixweb.access.needs import OWN, needs
from helixweb.common.views import preferences, texts

urlpatterns = [
    path("login/", PasswordLogin.as_view(), name="login"),
    path("login/sso/", sso_pages.begin, name="sso-begin"),
    path("login/sso/callback/", sso_pages.callback, name="sso-callback"),
    path("logout/", needs(change=OWN)(LogoutView.as_view()), name="logout"),
    path("settings/", needs(OWN, OWN)(preferences), name="settings"),
    path("texts.js", needs(OWN)(texts), name="texts"),
    path("events", views.events, name="events"),
    path("settings/users/", people_pages.users, name="users"),
    path("settings/users/<int:pk>/", people_pages.user, name="user"),
    path("settings/users/<int:pk>/keep-out", people_pages.keep_out, name="user-keep-out"),
    path("settings/users/<int:pk>/let-in", people_pages.let_in, name="user-let-in"),
    path("settings/users/<int:pk>/log-out", people_pages.log_out_everywhere, name="user-log-out"),
    path("settings/grants/<int:pk>/withdraw", people_pages.withdraw, name="grant-withdraw"),
    path("settings/groups/", group_pages.groups, name="groups"),
    path("settings/groups/<int:pk>/", group_pages.group, name="group"),
    path("settings/groups/<int:pk>/delete", group_pages.group_delete, name="group-delete"),
    path("clusters/<int:pk>/access/", group_pages.cluster_access, name="cluster-access"),
    path("settings/api-keys/", key_pages.api_keys, name="api-keys"),
    path("settings/api-keys/<int:pk>/revoke", key_pages.revoke_api_key, name="api-key-revoke"),
    path("settings/sessions/", key_pages.log_ins, name="sessions"),
    path("settings/sessions/end", key_pages.log_ins_end, name="sessions-end"),
    path("settings/sessions/<int:pk>/end", key_pages.log_in_end, name="session-end"),
]

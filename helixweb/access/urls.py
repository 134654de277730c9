"""Pages of who may do what."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from helixweb.access import events_api, login, pages
from helixweb.access.login import PasswordLogin
from helixweb.access.needs import OWN, needs
from helixweb.common.views import preferences, texts

urlpatterns = [
    path("login/", PasswordLogin.as_view(), name="login"),
    path("login/sso/", login.begin, name="sso-begin"),
    path("login/sso/callback/", login.callback, name="sso-callback"),
    path("logout/", needs(change=OWN)(LogoutView.as_view()), name="logout"),
    path("settings/", needs(OWN, OWN)(preferences), name="settings"),
    path("texts.js", needs(OWN)(texts), name="texts"),
    path("events", events_api.events, name="events"),
    path("settings/users/", pages.users, name="users"),
    path("settings/users/<int:pk>/", pages.user, name="user"),
    path("settings/users/<int:pk>/keep-out", pages.keep_out, name="user-keep-out"),
    path("settings/users/<int:pk>/let-in", pages.let_in, name="user-let-in"),
    path("settings/users/<int:pk>/log-out", pages.log_out_everywhere, name="user-log-out"),
    path("settings/grants/<int:pk>/withdraw", pages.withdraw, name="grant-withdraw"),
    path("settings/groups/", pages.groups, name="groups"),
    path("settings/groups/<int:pk>/", pages.group, name="group"),
    path("settings/groups/<int:pk>/delete", pages.group_delete, name="group-delete"),
    path("clusters/<int:pk>/access/", pages.cluster_access, name="cluster-access"),
    path("settings/api-keys/", pages.api_keys, name="api-keys"),
    path("settings/api-keys/<int:pk>/revoke", pages.revoke_api_key, name="api-key-revoke"),
    path("settings/sessions/", pages.log_ins, name="sessions"),
    path("settings/sessions/end", pages.log_ins_end, name="sessions-end"),
    path("settings/sessions/<int:pk>/end", pages.log_in_end, name="session-end"),
]

"""REST: users, groups, roles, one's own keys and log-ins."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from helixweb.access import keys, people, roles_of_holders, sessions
from helixweb.access.models import Grant
from helixweb.access.needs import ADMIN, OWN, SITE_ADMIN, SITE_VIEWER, needs
from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
from helixweb.access.serializers import (
    ApiKeySerializer,
    EndedSerializer,
    GrantSerializer,
    GroupSerializer,
    LoginLinkSerializer,
    MeSerializer,
    SessionSerializer,
    UserChangeSerializer,
    UserSerializer,
)
from helixweb.common.models import ApiKey, SessionOfUser
from helixweb.common.rest.lists import PAGING
from helixweb.common.rest.operations import answers, post
from helixweb.common.rest.views import RestMixin, RestView
from helixweb.common.rest.viewsets import CreateViewSet, DeleteViewSet, UpdateViewSet
from helixweb.common.serializers import checked


@needs(SITE_VIEWER, SITE_ADMIN)
class UserViewSet(CreateViewSet[Any], UpdateViewSet[Any]):
    """Users; POST creates one, PATCH deactivates or reactivates one."""

    queryset = (
        get_user_model()
        .objects.prefetch_related("groups", "grants__cluster", "grants__user", "grants__group")
        .order_by("pk")
    )
    serializer_class = UserSerializer
    search_fields = ("username",)
    filterset_fields = ["username", "is_active", "is_superuser"]
    changing_by_itself = ("last_login",)

    @extend_schema(request=UserChangeSerializer, responses=UserSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Deactivate the user, or let them log in again."""
        asked = checked(UserChangeSerializer, request)
        with transaction.atomic():
            row = self.asked_object()
            people.set_active(row, **asked, by=request.user)
        return self.row_response(row)

    @post(LoginLinkSerializer, status=201)
    def login_link(self, user: Any) -> dict[str, str]:
        """A fresh link that logs in once."""
        return {"login_link": people.invite(user.get_username())}

    @post(EndedSerializer)
    def log_out(self, user: Any) -> dict[str, int]:
        """End every log-in of the user."""
        return {"ended": sessions.end_all(user)}


@needs(SITE_VIEWER, SITE_ADMIN)
class GroupViewSet(CreateViewSet[Group], UpdateViewSet[Group], DeleteViewSet[Group]):
    """Members of a group have its roles; PATCH replaces the members."""

    queryset = Group.objects.prefetch_related(
        "user_set", "grants__cluster", "grants__user", "grants__group"
    ).order_by("pk")
    serializer_class = GroupSerializer
    search_fields = ("name",)
    filterset_fields = ["name"]

    def perform_destroy(self, instance: Group) -> None:
        roles_of_holders.delete_group(instance)


@needs(ADMIN, ADMIN)
class GrantViewSet(CreateViewSet[Grant], DeleteViewSet[Grant]):
    """Who has which role where: all of the site, or of the clusters that one administers."""

    queryset = Grant.objects.select_related("user", "group", "cluster").order_by("pk")
    serializer_class = GrantSerializer
    search_fields = ("user__username", "group__name", "cluster__name")
    filterset_fields = ["cluster", "role", "user__username", "group__name"]

    def get_queryset(self) -> Any:
        rows = super().get_queryset()
        clusters = rights_of_request(self.request).where(Role.ADMIN)
        return rows if clusters is None else rows.filter(cluster__in=clusters)

    def perform_destroy(self, instance: Grant) -> None:
        roles_of_holders.withdraw(instance)


@needs(OWN, OWN)
class ApiKeyViewSet(CreateViewSet[ApiKey], DeleteViewSet[ApiKey]):
    """One's own keys, an administrator's list has everybody's; DELETE revokes one."""

    queryset = ApiKey.objects.select_related("user", "cluster").order_by("-pk")
    serializer_class = ApiKeySerializer
    search_fields = ("name", "key", "user__username")
    filterset_fields = ["user__username", "cluster", "name"]
    changing_by_itself = ("last_used_at", "used", "used_today")

    def get_queryset(self) -> Any:
        rows = super().get_queryset()
        if rights_of_request(self.request).site >= Role.ADMIN.rank:
            return rows
        return rows.filter(user=self.request.user.pk)

    def paginate_queryset(self, queryset: Any) -> Any:
        """A page of keys with their usage."""
        return keys.used_by(super().paginate_queryset(queryset) or [], now=timezone.now())

    def get_object(self) -> ApiKey:
        """The key with its usage."""
        (key,) = keys.used_by([super().get_object()], now=timezone.now())
        return key

    def perform_destroy(self, instance: ApiKey) -> None:
        keys.end(instance)


@needs(OWN, OWN)
class SessionViewSet(
    RestMixin, mixins.ListModelMixin, mixins.DestroyModelMixin, GenericViewSet[SessionOfUser]
):
    """Where one is logged in; DELETE ends one."""

    queryset = SessionOfUser.objects.order_by("-pk")
    serializer_class = SessionSerializer
    filter_backends = []

    def query_parameters(self) -> Any:
        return PAGING if self.action == "list" else super().query_parameters()

    def get_queryset(self) -> QuerySet[SessionOfUser]:
        return sessions.own_sessions(self.request.user)

    def perform_destroy(self, instance: SessionOfUser) -> None:
        sessions.end(instance)

    @post(EndedSerializer, of_row=False)
    def end_others(self) -> dict[str, int]:
        """End all but the one that asks; a key ends all."""
        request = self.request
        here = getattr(request._request.session, "session_key", None)
        by_key = isinstance(request.auth, ApiKey)
        return {"ended": sessions.end_all(request.user, but=None if by_key else here)}


@needs(OWN)
class MeView(RestView):
    @answers(MeSerializer, is_get=True, of_row=False)
    def get(self) -> dict[str, Any]:
        """Who asks, and what they may do."""
        request = self.request
        rights = rights_of_request(request._request)
        key = request.auth if isinstance(request.auth, ApiKey) else None
        by_rank = {role.rank: role.value for role in Role}
        roles = [
            {"cluster": pk, "role": by_rank[rank]}
            for pk, rank in sorted(rights.clusters.items())
            if rank > rights.site
        ]
        return {
            "username": request.user.get_username(),
            "site_role": by_rank.get(rights.site),
            "roles": roles,
            "key": key.key if key else None,
            "scopes": sorted(key.scopes) if key else None,
        }

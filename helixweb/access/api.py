"""REST: users, groups, roles, one's own keys and log-ins."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, mixins, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
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
from helixweb.common.refusals import Conflict
from helixweb.common.rest.lists import PAGING
from helixweb.common.rest.operations import answers, post
from helixweb.common.rest.views import RestMixin, RestView
from helixweb.common.rest.viewsets import DeleteViewSet, VersionedViewSet


@needs(SITE_VIEWER, SITE_ADMIN)
class UserViewSet(VersionedViewSet[Any]):
    """People; POST lets somebody in, PATCH keeps them out or lets them in again."""

    queryset = (
        get_user_model()
        .objects.prefetch_related("groups", "grants__cluster", "grants__user", "grants__group")
        .order_by("pk")
    )
    serializer_class = UserSerializer
    search_fields = ("username",)
    filterset_fields = ["username", "is_active", "is_superuser"]
    changing_by_itself = ("last_login",)
    http_method_names = ["get", "post", "patch", "head", "options"]

    @extend_schema(request=UserSerializer, responses={201: UserSerializer})
    def create(self, request: Request) -> Response:
        """Make the user, and a link that logs in once."""
        asked = self.get_serializer(data=request.data)
        asked.is_valid(raise_exception=True)
        name, role = asked.validated_data["username"], asked.validated_data["role"]
        if get_user_model().objects.filter(username=name).exists():
            raise Conflict(f"There is a user {name!r} already; POST to their login-link instead.")
        link = _link(people.invite(name, role=Role(role) if role else None))
        row = self.get_queryset().get(username=name)
        answer = UserSerializer(row, context={**self.get_serializer_context(), "login_link": link})
        return Response(answer.data, status=status.HTTP_201_CREATED)

    @extend_schema(request=UserChangeSerializer, responses=UserSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Keep the user out, or let them in again."""
        asked = UserChangeSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        with transaction.atomic():
            row = self.asked_object()
            try:
                if asked.validated_data["is_active"]:
                    people.let_in(row)
                else:
                    people.keep_out(row, by=request.user)
            except people.NotYourself as error:
                raise Conflict(str(error)) from error
        return self.row_response(row)

    @post(LoginLinkSerializer, status=201)
    def login_link(self, user: Any) -> dict[str, str]:
        """A fresh link that logs in once."""
        return {"login_link": _link(people.invite(user.get_username()))}

    @post(EndedSerializer)
    def log_out(self, user: Any) -> dict[str, int]:
        """End every log-in of the user."""
        return {"ended": sessions.end_all(user)}


def _link(token: str) -> str:
    return f"{settings.HELIX_URL}{people.login_path(token)}"


@needs(SITE_VIEWER, SITE_ADMIN)
class GroupViewSet(mixins.CreateModelMixin, DeleteViewSet[Group]):
    """Whoever is in a group has its roles; PATCH says who is."""

    queryset = Group.objects.prefetch_related(
        "user_set", "grants__cluster", "grants__user", "grants__group"
    ).order_by("pk")
    serializer_class = GroupSerializer
    search_fields = ("name",)
    filterset_fields = ["name"]
    http_method_names = ["get", "post", "patch", "delete", "head", "options"]

    def perform_create(self, serializer: BaseSerializer[Group]) -> None:
        given = serializer.validated_data
        with transaction.atomic():
            group = roles_of_holders.make_group(given["name"])
            roles_of_holders.set_members(group, given.get("user_set", []))
        serializer.instance = group

    @extend_schema(request=GroupSerializer, responses=GroupSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Exactly these are its members."""
        with transaction.atomic():
            row = self.asked_object()
            asked = self.get_serializer(row, data=request.data, partial=True)
            asked.is_valid(raise_exception=True)
            if asked.validated_data.get("name", row.name) != row.name:
                raise exceptions.ValidationError({"name": ["A group keeps its name."]})
            if "user_set" in asked.validated_data:
                roles_of_holders.set_members(row, asked.validated_data["user_set"])
            changed = self.get_object()
        return self.row_response(changed)

    def perform_destroy(self, instance: Group) -> None:
        roles_of_holders.delete_group(instance)


@needs(ADMIN, ADMIN)
class GrantViewSet(mixins.CreateModelMixin, DeleteViewSet[Grant]):
    """Who has which role where: all of the site, or of the clusters that one administers."""

    queryset = Grant.objects.select_related("user", "group", "cluster").order_by("pk")
    serializer_class = GrantSerializer
    search_fields = ("user__username", "group__name", "cluster__name")
    filterset_fields = ["cluster", "role", "user__username", "group__name"]
    http_method_names = ["get", "post", "delete", "head", "options"]

    def get_queryset(self) -> Any:
        rows = super().get_queryset()
        clusters = rights_of_request(self.request).where(Role.ADMIN)
        return rows if clusters is None else rows.filter(cluster__in=clusters)

    def perform_create(self, serializer: BaseSerializer[Grant]) -> None:
        """On the whole site only an administrator of the site gives a role."""
        given = serializer.validated_data
        rights = rights_of_request(self.request)
        if given["cluster"] is None and rights.site < Role.ADMIN.rank:
            raise exceptions.PermissionDenied(
                "Only an administrator of the site gives roles on the whole site; name a cluster."
            )
        serializer.instance = roles_of_holders.give(
            given["holder"], Role(given["role"]), cluster=given["cluster"]
        )

    def perform_destroy(self, instance: Grant) -> None:
        roles_of_holders.withdraw(instance)


@needs(OWN, OWN)
class ApiKeyViewSet(mixins.CreateModelMixin, DeleteViewSet[ApiKey]):
    """One's own keys, an administrator's list has everybody's; DELETE revokes one."""

    queryset = ApiKey.objects.select_related("user", "cluster").order_by("-pk")
    serializer_class = ApiKeySerializer
    search_fields = ("name", "key", "user__username")
    filterset_fields = ["user__username", "cluster", "name"]
    changing_by_itself = ("last_used_at", "used", "used_today")
    http_method_names = ["get", "post", "delete", "head", "options"]

    def get_queryset(self) -> Any:
        rows = super().get_queryset()
        if rights_of_request(self.request).site >= Role.ADMIN.rank:
            return rows
        return rows.filter(user=self.request.user.pk)

    def paginate_queryset(self, queryset: Any) -> Any:
        """With what each was used for."""
        return keys.used_by(super().paginate_queryset(queryset) or [], now=timezone.now())

    def get_object(self) -> ApiKey:
        """With what it was used for."""
        (key,) = keys.used_by([super().get_object()], now=timezone.now())
        return key

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A key that makes keys makes none that may do more than itself."""
        asked = ApiKeySerializer(data=request.data, context=self.get_serializer_context())
        asked.is_valid(raise_exception=True)
        columns, maker = asked.validated_data, request.auth
        if isinstance(maker, ApiKey) and (why := keys.more_than(maker, **columns)):
            raise exceptions.PermissionDenied(why)
        new = keys.make(user=request.user, **columns)
        (row,) = keys.used_by([new.row], now=timezone.now())
        context = {**self.get_serializer_context(), "secret": new.secret}
        answer = ApiKeySerializer(row, context=context)
        return Response(answer.data, status=status.HTTP_201_CREATED)

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

"""REST: users, groups, roles, one's own keys and log-ins, and how they are shown."""

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import exceptions, mixins, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from helixweb.access import keys, people, roles_of_holders, sessions
from helixweb.access.models import Grant
from helixweb.access.needs import ADMIN, OWN, SITE_ADMIN, SITE_VIEWER, needs
from helixweb.access.roles import Role
from helixweb.access.roles_of_holders import NoHolder, holder_named
from helixweb.access.scope import rights_of_request
from helixweb.common import auth
from helixweb.common.api_keys import MOST_NETWORKS, checked_networks
from helixweb.common.models import ApiKey, SessionOfUser
from helixweb.common.refusals import Conflict
from helixweb.common.rest.lists import PAGING
from helixweb.common.rest.views import RestMixin, RestView, answers, post
from helixweb.common.rest.viewsets import CreateViewSet, DeleteViewSet, UpdateViewSet
from helixweb.common.serializers import RowKey, ShownOnce, StrictFieldsMixin, checked

MOST_MEMBERS = 1000


def _cluster() -> RowKey:
    """One of the clusters in scope, null: the whole site; the model is above this app."""
    rows = apps.get_model("inventory.Cluster").objects.order_by("pk")
    return RowKey(queryset=rows, allow_null=True, default=None)


class GrantSerializer(StrictFieldsMixin, serializers.ModelSerializer[Grant]):
    """A role of `user` or of `group`, by name, on `cluster`; null: on the whole site."""

    user = serializers.CharField(source="user.username", allow_null=True, default=None)
    group = serializers.CharField(source="group.name", allow_null=True, default=None)
    cluster = _cluster()
    role = serializers.ChoiceField(choices=Role.choices)

    class Meta:
        model = Grant
        fields = ["id", "user", "group", "cluster", "role", "created_at"]
        read_only_fields = ["created_at"]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        names = {
            kind: (attrs.pop(kind, None) or {}).get(field)
            for kind, field in (("user", "username"), ("group", "name"))
        }
        if (names["user"] is None) == (names["group"] is None):
            raise serializers.ValidationError("Name either a user or a group.")
        kind = "user" if names["user"] is not None else "group"
        try:
            holder = holder_named(str(names[kind]), kinds=(kind,))
        except NoHolder as error:
            raise serializers.ValidationError({kind: [str(error)]}) from error
        return {**attrs, "holder": holder}

    def create(self, validated_data: dict[str, Any]) -> Grant:
        """On the whole site only an administrator of the site gives a role."""
        rights = rights_of_request(self.context["request"])
        if validated_data["cluster"] is None and rights.site < Role.ADMIN.rank:
            raise exceptions.PermissionDenied(
                "Only an administrator of the site gives roles on the whole site; name a cluster."
            )
        return roles_of_holders.give(
            validated_data["holder"], validated_data["role"], cluster=validated_data["cluster"]
        )


class UserSerializer(StrictFieldsMixin, serializers.ModelSerializer[Any]):
    """`role` is given to a new user on the whole site; roles are changed by /grants/.

    `login_link` is in the answer to who made the user, and shown this once.
    """

    username = serializers.CharField(max_length=150, validators=[UnicodeUsernameValidator()])
    role = serializers.ChoiceField(
        choices=Role.choices, allow_null=True, default=None, write_only=True
    )
    grants = serializers.SerializerMethodField()
    groups: Any = serializers.SlugRelatedField(many=True, read_only=True, slug_field="name")
    login_link = ShownOnce()

    class Meta:
        model = get_user_model()
        fields = [
            "id", "username", "is_active", "is_superuser", "role", "grants", "groups",
            "last_login", "date_joined", "login_link",
        ]  # fmt: skip
        read_only_fields = ["is_superuser", "last_login", "date_joined"]

    @extend_schema_field(GrantSerializer(many=True))
    def get_grants(self, user: Any) -> Any:
        return GrantSerializer(user.grants.all(), many=True).data

    def create(self, validated_data: dict[str, Any]) -> Any:
        name, role = validated_data["username"], validated_data["role"]
        users = get_user_model().objects
        if users.filter(username=name).exists():
            raise Conflict(f"There is a user {name!r} already; POST to their login-link instead.")
        link = people.invite(name, role=role)
        user = users.get(username=name)
        user.login_link = link  # type: ignore[attr-defined]  # shown this once
        return user


class UserChangeSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Whether the user may log in."""

    is_active = serializers.BooleanField()


class LoginLinkSerializer(serializers.Serializer[Any]):
    """Logs in once, within the hour."""

    login_link = serializers.CharField(read_only=True)


class EndedSerializer(serializers.Serializer[Any]):
    """How many log-ins were ended."""

    ended = serializers.IntegerField(read_only=True)


class GroupSerializer(StrictFieldsMixin, serializers.ModelSerializer[Group]):
    """`members` are user names."""

    members = serializers.SlugRelatedField(
        source="user_set",
        many=True,
        slug_field="username",
        queryset=get_user_model().objects.all(),
        required=False,
    )
    grants = GrantSerializer(many=True, read_only=True)

    class Meta:
        model = Group
        fields = ["id", "name", "members", "grants"]

    def validate_members(self, members: list[Any]) -> list[Any]:
        if len(members) > MOST_MEMBERS:
            raise serializers.ValidationError(f"{len(members)} members; at most {MOST_MEMBERS}.")
        return members

    def create(self, validated_data: dict[str, Any]) -> Group:
        with transaction.atomic():
            group = roles_of_holders.make_group(validated_data["name"])
            roles_of_holders.set_members(group, validated_data.get("user_set", []))
        return group

    def update(self, instance: Group, validated_data: dict[str, Any]) -> Group:
        """Exactly these are its members."""
        if validated_data.get("name", instance.name) != instance.name:
            raise serializers.ValidationError({"name": ["A group keeps its name."]})
        if "user_set" in validated_data:
            roles_of_holders.set_members(instance, validated_data["user_set"])
        return instance


class CountsSerializer(serializers.Serializer[Any]):
    """What a key was used for."""

    rest_requests = serializers.IntegerField()
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()


class ScopesField(serializers.MultipleChoiceField):
    def to_representation(self, value: Any) -> Any:
        return sorted(super().to_representation(value))


def _budget(most: int) -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=most, allow_null=True, default=None)


class ApiKeySerializer(StrictFieldsMixin, serializers.ModelSerializer[ApiKey]):
    """A key; `secret` is in the answer to who made it, and shown this once.

    It may do no more than its owner. Limits that are null are none.
    """

    owner = serializers.CharField(source="user.username", read_only=True)
    scopes = ScopesField(choices=auth.SCOPES, allow_empty=False)
    cluster = _cluster()
    networks = serializers.ListField(
        child=serializers.CharField(max_length=60), max_length=MOST_NETWORKS, default=list
    )
    requests_per_min = _budget(2**31 - 1)
    tokens_per_min = _budget(2**31 - 1)
    tokens_per_day = _budget(2**53 - 1)
    expires_at = serializers.DateTimeField(allow_null=True, default=None)
    used = CountsSerializer(read_only=True)
    used_today = CountsSerializer(read_only=True)
    secret = ShownOnce()

    class Meta:
        model = ApiKey
        fields = [
            "id", "name", "key", "owner", "scopes", "cluster", "networks", "requests_per_min",
            "tokens_per_min", "tokens_per_day", "created_at", "expires_at", "revoked_at",
            "last_used_at", "used", "used_today", "secret",
        ]  # fmt: skip
        read_only_fields = ["key", "created_at", "revoked_at", "last_used_at"]

    def validate_networks(self, texts: list[str]) -> list[str]:
        try:
            return checked_networks(texts)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error

    def validate_expires_at(self, value: Any) -> Any:
        if value is not None and value <= timezone.now() + timedelta(seconds=1):
            raise serializers.ValidationError(f"{value} is past; choose a later time.")
        return value

    def create(self, validated_data: dict[str, Any]) -> ApiKey:
        """A key that makes keys makes none that may do more than itself."""
        request = self.context["request"]
        maker = request.auth
        if isinstance(maker, ApiKey) and (why := keys.more_than(maker, **validated_data)):
            raise exceptions.PermissionDenied(why)
        made = keys.make(user=request.user, **validated_data)
        (key,) = keys.used_by([made], now=timezone.now())
        return key


class SessionSerializer(serializers.ModelSerializer[SessionOfUser]):
    """A log-in that goes on."""

    class Meta:
        model = SessionOfUser
        fields = ["id", "address", "browser", "began_at"]
        read_only_fields = fields


class RoleOnClusterSerializer(serializers.Serializer[Any]):
    cluster = serializers.IntegerField()
    role = serializers.ChoiceField(choices=Role.choices)


class MeSerializer(serializers.Serializer[Any]):
    """Who asks, and what they may do: on the site, and where it is more on single clusters."""

    username = serializers.CharField()
    site_role = serializers.ChoiceField(choices=Role.choices, allow_null=True)
    roles = RoleOnClusterSerializer(many=True)
    key = serializers.CharField(allow_null=True)
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True)


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

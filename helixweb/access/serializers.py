"""People, groups, roles and keys as JSON."""

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import exceptions, serializers

from helixweb.access import keys, people, roles_of_holders
from helixweb.access.holders import NoHolder, holder_named
from helixweb.access.models import Grant
from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
from helixweb.common import auth
from helixweb.common.api_keys import MOST_NETWORKS, checked_networks
from helixweb.common.models import ApiKey, SessionOfUser
from helixweb.common.refusals import Conflict
from helixweb.common.serializers import RowKey, ShownOnce, StrictFieldsMixin

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

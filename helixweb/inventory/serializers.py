"""The inventory as JSON. Writing goes through `services`; unknown fields are refused."""

from collections.abc import Iterable
from typing import Any, cast

from django.db import models
from rest_framework import serializers

from helixweb.access.log_readers import LogReader
from helixweb.common.serializers import RowKey, ShownOnce, StrictFieldsMixin
from helixweb.inventory.columns import MAX_MACHINES, NAME_LENGTH, PROFILE_NAME_LENGTH, columns_of
from helixweb.inventory.models import (
    Change,
    Cluster,
    Coordinator,
    JoinToken,
    LanguageModel,
    Link,
    Node,
    NodeState,
    Origin,
    Profile,
    ProfileVersion,
    RegionLink,
    SharedBandwidth,
)
from helixweb.inventory.process_models import NODE_COLUMNS
from helixweb.inventory.services import checkpoint_reading, errors, joining, records
from helixweb.inventory.stale_profiles import measured_elsewhere
from helixweb.inventory.validators import validate_curve, validate_members, validate_name
from planner.roofline import DATA_SHEETS

AGENT_FIELDS = ["data_endpoint", "version", "joined_at", "last_seen_at"]


class Points(serializers.ListField):
    """Pairs [tokens, seconds]."""

    child = serializers.ListField(child=serializers.FloatField(), min_length=2, max_length=2)


class RowSerializer(StrictFieldsMixin, serializers.ModelSerializer[models.Model]):
    """Checks the fields, then has `records` write the row."""

    def create(self, validated_data: dict[str, Any]) -> models.Model:
        return records.create(self.Meta.model, **validated_data)

    def update(self, instance: models.Model, validated_data: dict[str, Any]) -> models.Model:
        # The cluster of a row (and the model of a profile) cannot change.
        for name in ("cluster", "model"):
            if name in validated_data and validated_data[name] != getattr(instance, name):
                raise serializers.ValidationError(
                    {name: [f"The {name} of a row cannot be changed; create another row there."]}
                )
        return records.update(instance, **validated_data)

    class Meta:
        model: type[models.Model]


def row_serializer(kind: type[models.Model], *more: str, base: Any = RowSerializer) -> Any:
    """The serializer of the columns that people write, and `more` that they only read."""
    owner = ["cluster"] if hasattr(kind, "cluster") else []
    fields = ["id", *owner, *columns_of(kind), *more]
    meta = type("Meta", (), {"model": kind, "fields": fields, "read_only_fields": more})
    return type(f"{kind.__name__}Serializer", (base,), {"Meta": meta})


ClusterSerializer = row_serializer(Cluster, "created_at")


class CutPairSerializer(serializers.Serializer[Any]):
    """`source` does not reach `endpoint`, which is of `target`; `why` as its system says it."""

    source = serializers.CharField()  # type: ignore[assignment]
    target = serializers.CharField()
    endpoint = serializers.CharField()
    why = serializers.CharField()
    remedy = serializers.CharField()


class ReachabilitySerializer(serializers.Serializer[Any]):
    """Of the coordinators and nodes that can be heard; `untried` have not reported yet.

    `cut` are data ports that are not reached. A plan that needs one cannot be deployed.
    `weights_cut` are ports at which nodes serve weights: without them weights come from the site or
    the hub.
    """

    processes = serializers.IntegerField(source="count")
    untried = serializers.ListField(child=serializers.CharField())
    cut = CutPairSerializer(source="cuts", many=True)
    weights_cut = CutPairSerializer(source="weights_cuts", many=True)


class LanguageModelSerializer(RowSerializer):
    class Meta:
        model = LanguageModel
        fields = ["id", *columns_of(LanguageModel), "created_at"]
        read_only_fields = ["created_at"]
        extra_kwargs = {
            key: {"required": False} for key in (*checkpoint_reading.NEEDED_NUMBERS, "name")
        } | {
            "checkpoint": {
                "help_text": "A whole path on the nodes, or a name on the hub. Numbers that a new "
                "model is sent without are read from it."
            }
        }

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Numbers that are left out are read from the checkpoint."""
        missing = [key for key in checkpoint_reading.NEEDED_NUMBERS if key not in attrs]
        if self.instance is None and missing:
            read = self.context.get("read")
            if isinstance(read, checkpoint_reading.CheckpointRefused):
                raise read
            if read is None:
                message = "Give it, or a checkpoint to read it from; a batch reads none."
                raise serializers.ValidationError({key: [message] for key in missing})
            attrs = checkpoint_reading.filled_from(read, attrs)
        if self.instance is None and "name" not in attrs:
            raise serializers.ValidationError({"name": ["Give it."]})
        return attrs


class ProfileLayerTimesSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Seconds one layer takes for a batch: points of (tokens, seconds), tokens rising."""

    prompt = Points()
    decode = Points()
    prompt_step_s = serializers.FloatField(
        required=False, min_value=0, help_text="What a step takes however many layers it runs."
    )
    decode_step_s = serializers.FloatField(required=False, min_value=0)
    head_s = serializers.FloatField(
        required=False, min_value=0, help_text="Logits and tokens, on the model's last layer."
    )
    handling_s = serializers.FloatField(
        required=False, min_value=0, help_text="What a stage does beside each step."
    )
    hop_s = serializers.FloatField(
        required=False, min_value=0, help_text="A message between processes, beside the link."
    )


class BatchLimitsSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What goes into one batch at most; one number for each number of layers held."""

    prompt_max_requests = serializers.ListField(child=serializers.IntegerField(min_value=1))
    decode_max_tokens = serializers.ListField(child=serializers.IntegerField(min_value=1))


class ProfileEndRoomSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """The most layers that a node can hold at an end of the model, and the KV room lost there."""

    max_layers = serializers.IntegerField(min_value=0)
    kv_token_layers_less = serializers.FloatField(
        required=False, min_value=0, help_text="Tokens x layers less than in the middle."
    )


class ProfileKvMinimumSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """KV cache that layers must leave room for: so many requests of so many tokens."""

    requests = serializers.IntegerField(min_value=1)
    tokens = serializers.IntegerField(min_value=1)


class ProfileMemorySerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What is left where a node holds the embedding, the output head, or both as well."""

    first = ProfileEndRoomSerializer()
    last = ProfileEndRoomSerializer()
    both = ProfileEndRoomSerializer()
    kv_minimum = ProfileKvMinimumSerializer(required=False)
    reserve_bytes = serializers.FloatField(required=False, min_value=0)


class ProfileSerializer(RowSerializer):
    tokens_per_s = serializers.ListField(
        child=serializers.FloatField(), validators=[validate_curve]
    )
    kv_capacity_token_layers = serializers.ListField(
        child=serializers.FloatField(), validators=[validate_curve]
    )
    layer_times = ProfileLayerTimesSerializer(
        required=False, allow_null=True, help_text="Null: derived from tokens_per_s."
    )
    batch_limits = BatchLimitsSerializer(required=False, allow_null=True)
    memory = ProfileMemorySerializer(
        required=False, allow_null=True, help_text="Null: the model's ends cost nothing."
    )

    class Meta:
        model = Profile
        fields = [
            "id", "cluster", "model", "name", "gpu", "vram_bytes", "max_layers", "tokens_per_s",
            "kv_capacity_token_layers", "layer_times", "batch_limits", "memory", "price_per_hour",
            "origin", "recorded_at",
        ]  # fmt: skip


class ProfileVersionSerializer(serializers.ModelSerializer[ProfileVersion]):
    """What a profile was found to be once; `document` is as in a problem file."""

    document = serializers.DictField(read_only=True)
    evidence = serializers.DictField(read_only=True, allow_null=True)

    class Meta:
        model = ProfileVersion
        fields = [
            "id", "profile", "number", "origin", "node", "document", "evidence", "recorded_at",
        ]  # fmt: skip
        read_only_fields = fields


class ProfileImportSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """A `helixweb.profile/1` document for a cluster, called `name` or as it says itself."""

    cluster = RowKey(queryset=Cluster.objects.all())
    name = serializers.CharField(required=False, max_length=PROFILE_NAME_LENGTH)
    document = serializers.DictField()


class EstimateSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """A GPU without a measurement; `name` as the GPU's if left out."""

    cluster = RowKey(queryset=Cluster.objects.all())
    model = RowKey(queryset=LanguageModel.objects.all())
    gpu = serializers.ChoiceField(choices=sorted(DATA_SHEETS))
    name = serializers.CharField(
        required=False, max_length=PROFILE_NAME_LENGTH, validators=[validate_name]
    )


def refuse_measured_elsewhere(nodes: Iterable[Node], profile_name: str) -> None:
    """Raise Conflicting if a node's hardware differs from that on which the profile was measured.
    Callers skip it for a request that says `confirm_profile`."""
    found = measured_elsewhere(nodes, profile_name)
    if found is not None:
        node, why = found
        raise errors.Conflicting(f"{node.name}: {why} To confirm it, send confirm_profile: true.")


def confirm_profile_field() -> serializers.BooleanField:
    return serializers.BooleanField(
        required=False,
        write_only=True,
        help_text="Assign a profile that was measured on other hardware.",
    )


class NodeSerializer(RowSerializer):
    confirm_profile = confirm_profile_field()
    state = serializers.ChoiceField(NodeState.choices, read_only=True)
    hardware = serializers.DictField(read_only=True, allow_null=True)
    tags: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(
        many=True, read_only=True, slug_field="name", help_text="Changed by nodes/bulk/."
    )

    class Meta:
        model = Node
        fields = [
            "id", "cluster", *NODE_COLUMNS, "state", "uuid", "hardware", "tags", *AGENT_FIELDS,
            "confirm_profile",
        ]  # fmt: skip
        read_only_fields = ["uuid", *AGENT_FIELDS]

    def create(self, validated_data: dict[str, Any]) -> models.Model:
        """Of a node without hardware: no measurement is known not to fit it."""
        validated_data.pop("confirm_profile", None)
        return super().create(validated_data)

    def update(self, instance: models.Model, validated_data: dict[str, Any]) -> models.Model:
        """Raises Conflicting also for an unconfirmed profile that was measured elsewhere."""
        node = cast(Node, instance)
        is_confirmed = validated_data.pop("confirm_profile", False)
        name = validated_data.get("profile_name", node.profile_name)
        if name != node.profile_name and not is_confirmed:
            refuse_measured_elsewhere([node], name)
        return super().update(instance, validated_data)


class BulkSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What to set on all of `nodes`; what is left out stays as it is."""

    nodes = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=models.BigAutoField.MAX_BIGINT),
        min_length=1,
        max_length=10_000,
    )
    region = serializers.CharField(required=False)
    profile_name = serializers.CharField(required=False, allow_blank=True)
    confirm_profile = confirm_profile_field()
    add_tags = serializers.ListField(child=serializers.CharField(), required=False)
    remove_tags = serializers.ListField(child=serializers.CharField(), required=False)


class ChangedSerializer(serializers.Serializer[Any]):
    """How many nodes differ from before."""

    changed = serializers.IntegerField()


class ChangeSerializer(serializers.ModelSerializer[Change]):
    """`before` and `after` hold what differs; null where there is none."""

    before = serializers.DictField(read_only=True, allow_null=True)
    after = serializers.DictField(read_only=True, allow_null=True)
    address = serializers.SerializerMethodField(
        help_text="For administrators and the actor; empty for others."
    )

    api_key = serializers.SerializerMethodField(
        help_text="The public part. For administrators and the actor; empty for others."
    )

    def get_api_key(self, line: Change) -> str:
        return LogReader.of(self.context["request"]).api_key(line)

    def get_address(self, line: Change) -> str:
        return LogReader.of(self.context["request"]).address(line)

    class Meta:
        model = Change
        fields = [
            "id", "cluster", "cluster_name", "kind", "row_id", "name", "action", "text", "actor",
            "actor_kind", "api_key", "address", "request_id", "comment", "batch", "before", "after",
            "at",
        ]  # fmt: skip
        read_only_fields = fields


class CoordinatorSerializer(serializers.ModelSerializer[Coordinator]):
    state = serializers.ChoiceField(NodeState.choices, read_only=True)

    class Meta:
        model = Coordinator
        fields = ["id", "cluster", "name", "state", "uuid", "http_url", *AGENT_FIELDS]
        read_only_fields = fields


class _ConnectionSerializer(RowSerializer):
    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Mark numbers without a source as entered by a user, which no measurement overwrites."""
        if attrs.keys() & {"bandwidth_bytes_per_s", "latency_s"}:
            attrs.setdefault("origin", Origin.ENTERED)
        return attrs


LinkSerializer = row_serializer(Link, "recorded_at", base=_ConnectionSerializer)
RegionLinkSerializer = row_serializer(RegionLink, "recorded_at", base=_ConnectionSerializer)


class SharedBandwidthSerializer(RowSerializer):
    members = serializers.ListField(
        child=serializers.CharField(max_length=NAME_LENGTH),
        validators=[validate_members],
        help_text="Nodes, regions (all their nodes) or 'coordinator'.",
    )

    class Meta:
        model = SharedBandwidth
        fields = ["id", "cluster", *columns_of(SharedBandwidth)]


class JoinTokenSerializer(StrictFieldsMixin, serializers.ModelSerializer[JoinToken]):
    """`secret` and `command` are in the answer to POST only, this once."""

    machines = serializers.IntegerField(
        default=1, min_value=1, max_value=MAX_MACHINES, help_text="How many it admits."
    )
    machines_admitted = serializers.IntegerField(read_only=True)
    names_admitted = serializers.ListField(child=serializers.CharField(), read_only=True)
    secret = ShownOnce()
    command = serializers.SerializerMethodField()

    class Meta:
        model = JoinToken
        fields = [
            "id", "cluster", "role", "machines", "created_at", "expires_at", "machines_admitted",
            "names_admitted", "used_at", "used_by_name", "secret", "command",
        ]  # fmt: skip
        read_only_fields = ["created_at", "expires_at", "used_at", "used_by_name"]

    def get_command(self, row: JoinToken) -> str | None:
        return joining.join_command(row.role, row.secret) if row.secret else None

    def create(self, validated_data: dict[str, Any]) -> JoinToken:
        return joining.create_join_token(**validated_data, user=self.context["request"].user)


class ImportSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Either a parsed `problem` or its `text` in JSON or YAML."""

    name = serializers.CharField(
        required=False, help_text="Call the cluster this instead of the problem's own name."
    )
    text = serializers.CharField(
        required=False, trim_whitespace=False, help_text="A helixweb.problem/1 file, JSON or YAML."
    )
    problem = serializers.DictField(
        required=False, help_text="The same as an object in this request."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("text" in attrs) == ("problem" in attrs):
            raise serializers.ValidationError("Give either `text` or `problem`.")
        return attrs

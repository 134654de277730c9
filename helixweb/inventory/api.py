"""REST: clusters, nodes, links, models, profiles, join tokens."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from helixweb.access.log_readers import LogReader
from helixweb.access.needs import DELETE_CLUSTER, OPERATOR, SITE_OPERATOR, VIEWER, needs
from helixweb.common.parsers import DocumentParser
from helixweb.common.queries import parsed_id
from helixweb.common.refusals import Conflict
from helixweb.common.rest.lists import ordered_columns
from helixweb.common.rest.views import get, post
from helixweb.common.rest.viewsets import CreateViewSet, DeleteViewSet, EditViewSet, ReadViewSet
from helixweb.inventory.as_code import importing
from helixweb.inventory.models import (
    Change,
    Cluster,
    Coordinator,
    JoinToken,
    LanguageModel,
    Link,
    Node,
    Profile,
    ProfileVersion,
    RegionLink,
    SharedBandwidth,
)
from helixweb.inventory.serializers import (
    BulkSerializer,
    ChangedSerializer,
    ChangeSerializer,
    ClusterSerializer,
    CoordinatorSerializer,
    EstimateSerializer,
    ImportSerializer,
    JoinTokenSerializer,
    LanguageModelSerializer,
    LinkSerializer,
    NodeSerializer,
    ProfileImportSerializer,
    ProfileSerializer,
    ProfileVersionSerializer,
    ReachabilitySerializer,
    RegionLinkSerializer,
    SharedBandwidthSerializer,
    refuse_measured_elsewhere,
)
from helixweb.inventory.services import bulk as inventory_bulk
from helixweb.inventory.services import (
    checkpoint_reading,
    demonstration,
    joining,
    presence,
    problems,
    profile_versions,
    reachability,
    records,
)
from planner.serialization import problem_from_dict, problem_from_text, problem_to_dict
from runtime.protocol.checkpoint_looks import ModelFacts


class _RecordMixin(DeleteViewSet[Any]):
    def perform_destroy(self, instance: Any) -> None:
        records.delete(instance)


class RowViewSet(_RecordMixin, EditViewSet[Any]):
    """Lists, creates, changes and deletes through the services."""

    @property
    def filterset_fields(self) -> tuple[str, ...]:
        """Filterable fields: all columns that a row shows."""
        view: Any = self
        return tuple(ordered_columns(view.queryset.model, view.get_serializer_class()))


@needs(VIEWER, SITE_OPERATOR, partial_update=OPERATOR, destroy=DELETE_CLUSTER)
class ClusterViewSet(RowViewSet):
    queryset = Cluster.objects.order_by("pk")
    serializer_class = ClusterSerializer
    search_fields = ("name", "source")
    action_parameters = {"problem": ("model",)}

    @post(
        ClusterSerializer, takes=ImportSerializer, status=201, at="import", of_row=False,
        parser_classes=[DocumentParser],
    )  # fmt: skip
    def import_problem(self, name: str = "", **given: Any) -> Cluster:
        """Store a problem file as a cluster, all or nothing."""
        problem = (
            problem_from_text(given["text"], name_hint=name or "text")
            if "text" in given
            else problem_from_dict(given["problem"])
        )
        return importing.import_problem(problem, cluster_name=name)

    @post(ClusterSerializer, of_row=False)
    def demo(self) -> Cluster:
        """Load the demo cluster, made by rule, unless it is there."""
        return demonstration.demo_cluster()

    @get(
        OpenApiTypes.OBJECT,
        parameters=[
            OpenApiParameter("model", OpenApiTypes.INT, description="Needed if there are several.")
        ],
    )
    def problem(self, cluster: Cluster) -> dict[str, Any]:
        """The cluster as a `helixweb.problem/1` document."""
        model = _chosen_model(cluster, self.request.query_params.get("model"))
        return problem_to_dict(problems.build_problem(cluster, model))

    @get(ReachabilitySerializer)
    def reach(self, cluster: Cluster) -> dict[str, Any]:
        """Which of its processes cannot reach which ports of others."""
        return reachability.reach_matrix(reachability.parties(cluster.pk, now=timezone.now()))


def _chosen_model(cluster: Cluster, wanted: str | None) -> LanguageModel:
    if wanted is not None:
        number = parsed_id(wanted)
        if number is None:
            message = f"{wanted[:20]!r} is not the id of a model."
            raise serializers.ValidationError({"model": [message]})
        return get_object_or_404(LanguageModel, pk=number)
    models = problems.models_of(cluster)
    if len(models) != 1:
        names = ", ".join(f"{model.pk} ({model.name})" for model in models) or "none yet"
        raise serializers.ValidationError(
            {"model": [f"Say for which model; the cluster has profiles for: {names}."]}
        )
    return models[0]


class _RevokeMixin(DeleteViewSet[Any]):
    changing_by_itself = ("state", "last_seen_at")

    @post()
    def revoke_credential(self, process: Any) -> None:
        """Shut the process out; it can only join again, with a fresh token."""
        if not presence.revoke_credential(process):
            message = f"{process.name} has no credential; it has not joined, or lost it before."
            raise Conflict(message)


@needs(VIEWER, OPERATOR)
class NodeViewSet(_RevokeMixin, RowViewSet):
    queryset = Node.objects.prefetch_related("tags").order_by("pk")
    serializer_class = NodeSerializer
    search_fields = ("name", "region", "profile_name", "tags__name")

    @post(ChangedSerializer, takes=BulkSerializer, of_row=False)
    def bulk(self, confirm_profile: bool = False, **given: Any) -> dict[str, int]:
        """Change region, profile or tags of many nodes at once, all or none."""
        wanted = set(given.pop("nodes"))
        nodes = Node.objects.within(self.request).filter(pk__in=wanted)
        missing = sorted(wanted - {*nodes.values_list("pk", flat=True)})
        if missing:
            if Node.objects.within(self.request, "viewer").filter(pk__in=missing).exists():
                raise PermissionDenied("You may see some of these nodes, but not change them.")
            named = ", ".join(str(pk) for pk in missing[:20])
            raise serializers.ValidationError(
                {"nodes": [f"There is no node {named}, so nothing was changed."]}
            )
        name = given.get("profile_name")
        if name and not confirm_profile:
            refuse_measured_elsewhere(nodes.exclude(profile_name=name), name)
        return {"changed": inventory_bulk.change_nodes(nodes, sorted(wanted), **given)}


@needs(VIEWER)
class ChangeViewSet(ReadViewSet[Change]):
    """Who did what to which row, the newest first."""

    queryset = Change.objects.order_by("-pk")
    serializer_class = ChangeSerializer
    filterset_fields = [
        "cluster", "kind", "row_id", "name", "actor", "actor_kind", "api_key", "address",
        "request_id", "action", "batch", "at",
    ]  # fmt: skip
    search_fields = ("name", "text", "actor", "comment")

    def filter_queryset(self, queryset: Any) -> Any:
        """Lines that the user may read; address or key find only lines that show it to the user."""
        rows, reader = super().filter_queryset(queryset), LogReader.of(self.request._request)
        if any(name.startswith(("address", "api_key")) for name in self.request.query_params):
            rows = reader.with_origin(rows)
        return reader.lines(rows)


@needs(VIEWER, OPERATOR)
class CoordinatorViewSet(_RevokeMixin, _RecordMixin):
    """Coordinators come by registering; a person can only remove one."""

    queryset = Coordinator.objects.order_by("pk")
    serializer_class = CoordinatorSerializer
    filterset_fields = ["cluster", "name", "uuid", "last_seen_at"]
    search_fields = ("name", "http_url")


@needs(VIEWER, OPERATOR)
class LinkViewSet(RowViewSet):
    queryset = Link.objects.order_by("pk")
    serializer_class = LinkSerializer
    search_fields = ("source", "target")


@needs(VIEWER, OPERATOR)
class RegionLinkViewSet(RowViewSet):
    queryset = RegionLink.objects.order_by("pk")
    serializer_class = RegionLinkSerializer
    search_fields = ("source", "target")


@needs(VIEWER, OPERATOR)
class SharedBandwidthViewSet(RowViewSet):
    """What several links have together, beside the bandwidth of each."""

    queryset = SharedBandwidth.objects.order_by("pk")
    serializer_class = SharedBandwidthSerializer
    search_fields = ("name",)


@needs(VIEWER, SITE_OPERATOR)
class LanguageModelViewSet(RowViewSet):
    queryset = LanguageModel.objects.order_by("pk")
    serializer_class = LanguageModelSerializer
    search_fields = ("name", "checkpoint")
    # What the checkpoint of a new model says, or why it cannot be read.
    _read: ModelFacts | checkpoint_reading.CheckpointRefused | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Reads the checkpoint before a transaction begins: agents answer in others."""
        super().initial(request, *args, **kwargs)
        if self.action == "create":
            self._read = checkpoint_reading.read_where_needed(request.data)

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "read": self._read}


@needs(VIEWER, OPERATOR)
class ProfileViewSet(RowViewSet):
    queryset = Profile.objects.order_by("pk")
    serializer_class = ProfileSerializer
    search_fields = ("name", "gpu")

    @get(OpenApiTypes.OBJECT)
    def export(self, profile: Profile) -> Any:
        """The profile as a `helixweb.profile/1` document."""
        return profile_versions.export_profile(profile)

    @post(ProfileSerializer, takes=EstimateSerializer, status=201, of_row=False)
    def estimate(self, **given: Any) -> Profile:
        """Create a profile from the data sheet of a GPU without a measurement; marked as such."""
        return profile_versions.estimate_profile(**{"name": given["gpu"], **given})

    @post(
        ProfileVersionSerializer, takes=ProfileImportSerializer, status=201, at="import",
        of_row=False, parser_classes=[DocumentParser],
    )  # fmt: skip
    def import_profile(self, **given: Any) -> ProfileVersion:
        """Store such a document as a profile, or as the next version of the one of that name."""
        return profile_versions.import_profile(**given)


@needs(VIEWER, OPERATOR)
class ProfileVersionViewSet(DeleteViewSet[ProfileVersion]):
    """What profiles were found to be, the newest first."""

    queryset = ProfileVersion.objects.select_related("profile").order_by("-pk")
    serializer_class = ProfileVersionSerializer
    filterset_fields = ["profile", "profile__cluster", "origin", "node", "number", "recorded_at"]
    search_fields = ("profile__name", "node")

    @post(ProfileSerializer)
    def use(self, version: ProfileVersion) -> Profile:
        """Have plans use this version from now on."""
        return profile_versions.use_version(version)

    def perform_destroy(self, instance: ProfileVersion) -> None:
        profile_versions.delete_version(instance)


@needs(VIEWER, OPERATOR)
class JoinTokenViewSet(CreateViewSet[JoinToken], DeleteViewSet[JoinToken]):
    """POST answers with the secret and the command that uses it; they are shown this once.

    DELETE lets one expire at once, used or not.
    """

    queryset = JoinToken.objects.order_by("-pk")
    serializer_class = JoinTokenSerializer
    filterset_fields = ["cluster", "role", "created_at", "expires_at", "used_at"]
    search_fields = ("cluster__name", "used_by_name")

    def perform_destroy(self, instance: JoinToken) -> None:
        if not joining.revoke_join_token(instance.pk, now=timezone.now()):
            raise Conflict("The token had expired already.")

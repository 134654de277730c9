"""REST: traced requests."""

from typing import Any

from rest_framework import serializers

from helixweb.access.needs import VIEWER, needs
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.monitoring.models import TracedRequest
from helixweb.monitoring.request_filters import RequestFilter
from helixweb.monitoring.traces import traced_requests


class TracedRequestSerializer(serializers.ModelSerializer[TracedRequest]):
    """Times in seconds. `tpot_s` is null unless the answer is complete and has two tokens."""

    nodes = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = TracedRequest
        fields = (
            "request", "cluster", "arrived_at", "generation", "model_name", "outcome",
            "prompt_tokens", "output_tokens", "queue_s", "ttft_s", "tpot_s", "e2e_s", "attempts",
            "nodes",
        )  # fmt: skip


class TracedRequestDetailSerializer(TracedRequestSerializer):
    """With its parts, which add up to `e2e_s`, its time line and when its tokens came."""

    parts = serializers.JSONField(source="detail.parts", read_only=True)
    rows = serializers.JSONField(source="detail.rows", read_only=True)
    token_times_s = serializers.ListField(
        source="detail.token_times_s", child=serializers.FloatField(), read_only=True
    )

    class Meta(TracedRequestSerializer.Meta):
        fields = (  # type: ignore[assignment]
            *TracedRequestSerializer.Meta.fields, "parts", "rows", "token_times_s"
        )  # fmt: skip


class RequestApiFilter(RequestFilter):
    """As on the page, but in order as all lists are."""

    order = None


@needs(VIEWER)
class TracedRequestViewSet(ReadViewSet[TracedRequest]):
    """Requests of the last day that their coordinators traced, newest first."""

    queryset = TracedRequest.objects.all()
    serializer_class = TracedRequestSerializer
    filterset_class = RequestApiFilter
    search_fields = ("request", "model_name", "outcome")
    lookup_field = "request"
    lookup_url_kwarg = "number"
    lookup_value_regex = "[0-9a-f]{16}"

    def get_queryset(self) -> Any:
        if self.action == "retrieve":
            return TracedRequest.objects.within(self.request)
        rows = traced_requests(self.request).select_related(None)
        return rows.defer("detail", "transfers_s")

    def get_serializer_class(self) -> type[serializers.BaseSerializer[TracedRequest]]:
        if self.action == "retrieve":
            return TracedRequestDetailSerializer
        return TracedRequestSerializer

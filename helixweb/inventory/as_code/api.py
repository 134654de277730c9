"""REST: the inventory as one document, out and in."""

from typing import IO, Any

import yaml
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import parsers, renderers, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.access.roles import Role
from helixweb.access.scope import rights_of_request
from helixweb.common.parsers import DocumentParser, bounded
from helixweb.common.rest.negotiation import ByFormat
from helixweb.common.rest.views import RestView
from helixweb.common.serializers import RowKey, StrictFieldsMixin, checked
from helixweb.inventory.as_code.csv_files import KINDS, read_csv, write_csv
from helixweb.inventory.as_code.diff import Action, document_of, read_site
from helixweb.inventory.as_code.documents import (
    SECTIONS,
    Declaration,
    Kind,
    read_document,
    read_text,
)
from helixweb.inventory.as_code.importing import import_declaration
from helixweb.inventory.models import Cluster
from planner.yaml_reader import NUMBER

YAML, CSV = "application/yaml", "text/csv"
_JSON = "application/json"
_KINDS = sorted(KINDS)
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # which of two is known when it runs
    """Quotes texts like 1e5 or 0o17, which YAML 1.2 and our reader take for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+0123456789."))


def yaml_text(document: Any) -> str:
    """One line for every row without lists in it, so that files compare well line by line."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=1_000_000,
    )
    return text


class _Bytes(parsers.BaseParser):
    """`{"content": bytes}`, as they came; who reads them looks at their encoding."""

    def parse(self, stream: IO[Any], *args: Any, **options: Any) -> dict[str, Any]:
        return {"content": bounded(stream)}


class YamlBytes(_Bytes):
    media_type = YAML


class CsvBytes(_Bytes):
    media_type = CSV


class YamlRenderer(renderers.BaseRenderer):
    media_type, format, charset = YAML, "yaml", "utf-8"

    def render(self, data: Any, *args: Any, **options: Any) -> str:
        return yaml_text(data)


class CsvRenderer(renderers.BaseRenderer):
    """Renders text that is already CSV."""

    media_type, format, charset = CSV, "csv", "utf-8"

    def render(self, data: Any, *args: Any, **options: Any) -> str:
        return str(data)


class ExportQuerySerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which part; everything within reach if nothing is said."""

    cluster = RowKey(
        queryset=Cluster.objects.all(), required=False, help_text="This one only, with its models."
    )
    kind = serializers.ChoiceField(
        choices=_KINDS, required=False, help_text="Needed for CSV: which rows."
    )


class ImportQuerySerializer(ExportQuerySerializer):
    """What to do with a file."""

    dry_run = serializers.BooleanField(default=False, help_text="Only tell what would be done.")
    prune = serializers.BooleanField(
        default=False,
        help_text="Remove what the file leaves out, in the sections that it has. Models and "
        "clusters are never removed.",
    )
    expect = serializers.RegexField(
        r"^[0-9a-f]{64}\Z",
        required=False,
        help_text="The digest of a dry run: the answer is 409, and nothing is done, if something "
        "else would be done by now.",
    )
    cluster = RowKey(
        queryset=Cluster.objects.all(),
        required=False,
        help_text="For CSV without a column cluster: whose rows they are.",
    )


class StepSerializer(serializers.Serializer[Any]):
    """One row; `before` and `after` hold the keys that differ, `place` where the file says so."""

    action = serializers.ChoiceField(choices=[action.value for action in Action])
    kind = serializers.ChoiceField(choices=SECTIONS, source="kind.section")
    cluster = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    before = serializers.DictField()
    after = serializers.DictField()
    place = serializers.CharField(allow_blank=True)


class CountSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=SECTIONS)
    add = serializers.IntegerField()
    change = serializers.IntegerField()
    remove = serializers.IntegerField()


class OutcomeSerializer(serializers.Serializer[Any]):
    """The first thousand steps; `left_out` are more. `counts` counts all."""

    applied = serializers.BooleanField()
    digest = serializers.CharField(help_text="Of all steps; for `expect`.")
    counts = CountSerializer(many=True)
    steps = StepSerializer(many=True)
    left_out = serializers.IntegerField()


@needs(VIEWER)
class ExportView(RestView):
    renderer_classes = (JSONRenderer, YamlRenderer, CsvRenderer)
    content_negotiation_class = ByFormat

    def query_parameters(self) -> tuple[str, ...]:
        return (*ExportQuerySerializer().fields, "format")

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        """Refusals are JSON, whatever was asked for."""
        if response.status_code >= 400:
            request.accepted_renderer = JSONRenderer()
            request.accepted_media_type = _JSON
        return super().finalize_response(request, response, *args, **kwargs)

    @extend_schema(
        parameters=[ExportQuerySerializer],
        responses={
            (200, _JSON): OpenApiTypes.OBJECT,
            (200, YAML): OpenApiTypes.OBJECT,
            (200, CSV): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request) -> Response:
        """The inventory as `helixweb.inventory/1`: clusters with all that can be declared, models.

        As JSON or YAML by the header Accept; `text/csv` gives the rows of one kind.
        """
        given = {name: value for name, value in request.query_params.items() if name != "format"}
        asked = checked(ExportQuerySerializer, request, given)
        cluster, kind = asked.get("cluster"), asked.get("kind")
        clusters = Cluster.objects.within(request).order_by("name")
        clusters = clusters if cluster is None else clusters.filter(pk=cluster.pk)
        names = list(clusters.values_list("name", flat=True))
        site = read_site(request, names)
        if request.accepted_renderer.media_type != CSV:
            return Response(document_of(site, names, with_all_models=cluster is None))
        chosen = _kind(kind)
        rows = ((name, row.values) for name in names for row in site.of(chosen, name).values())
        return Response(write_csv(chosen, rows))


@needs(change=OPERATOR)
class ImportView(RestView):
    parser_classes = (DocumentParser, YamlBytes, CsvBytes)

    def query_parameters(self) -> tuple[str, ...]:
        return tuple(ImportQuerySerializer().fields)

    @extend_schema(
        parameters=[ImportQuerySerializer],
        request={_JSON: OpenApiTypes.OBJECT, YAML: OpenApiTypes.OBJECT, CSV: OpenApiTypes.STR},
        responses=OutcomeSerializer,
    )
    def post(self, request: Request) -> Response:
        """Make the site what a `helixweb.inventory/1` document or rows of CSV say; all or nothing.

        A key that is left out stays as it is. Errors name the line, or the path in JSON.
        """
        given = checked(ImportQuerySerializer, request, request.query_params)
        outcome = import_declaration(
            _declaration(request, given),
            scope=request,
            prune=given["prune"],
            dry_run=given["dry_run"],
            expected=given.get("expect", ""),
            may_change_site=rights_of_request(request._request).site >= Role.OPERATOR.rank,
        )
        return Response(OutcomeSerializer(outcome).data)


def _kind(section: str | None) -> Kind:
    """The kind of the rows of a CSV file. Raises ValidationError."""
    if section is None:
        raise ValidationError({"kind": [f"Say which rows: {', '.join(_KINDS)}."]})
    return KINDS[section]


def _declaration(request: Request, given: dict[str, Any]) -> Declaration:
    body: Any = request.data
    cluster, kind = given.get("cluster"), given.get("kind")
    media_type = str(request.content_type).partition(";")[0].strip()
    # DRF does not parse an empty body.
    content = body.get("content", b"") if media_type in (YAML, CSV) else b""
    if media_type != CSV:
        for name in ("cluster", "kind"):
            if given.get(name) is not None:
                raise ValidationError(
                    {name: ["Only CSV needs it; a document says it itself. Leave it out."]}
                )
        return read_text(content) if media_type == YAML else read_document(body)
    name = "" if cluster is None else cluster.name
    return read_csv(content, kind=_kind(kind), cluster=name)

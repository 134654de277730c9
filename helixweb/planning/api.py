"""REST: plan runs with their incumbents, plans with their figures."""

from dataclasses import replace
from typing import Any

from django.http import Http404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.serializers import BaseSerializer

from helixweb.common import jobs
from helixweb.common.own_turns import in_own_turn
from helixweb.common.pagination import Pages
from helixweb.common.refusals import Conflict
from helixweb.common.rest.lists import PAGING
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.planning.comparing import compare
from helixweb.planning.models import Plan, PlanRun, Replan
from helixweb.planning.options import DEFAULTS, options_from_json
from helixweb.planning.presentation import FIGURES, explanation_of, figure_of
from helixweb.planning.serializers import (
    AdoptionSerializer,
    ExplanationRequestSerializer,
    ExplanationSerializer,
    ExtensionSerializer,
    IncumbentSerializer,
    PlanRunRequestSerializer,
    PlanRunSerializer,
    PlanSerializer,
    PlanSummarySerializer,
    ReplanRequestSerializer,
    ReplanSerializer,
    UnmovedSerializer,
)
from helixweb.planning.services import ending, explaining, imagining, replanning, starting
from helixweb.planning.what_if_serializers import (
    ComparisonSerializer,
    WhatIfAnswerSerializer,
    WhatIfSerializer,
)
from planner.domain.rules import PlacementRules

# Of a run, of its plan, and of who started it, what a list shows.
COLUMNS_OF_LIST = (
    *(name for name in PlanRunSerializer.Meta.fields if name not in ("gap", "plan", "created_by")),
    "plan__id", "created_by__username",
)  # fmt: skip


class PlanRunViewSet(ReadViewSet[PlanRun]):
    queryset = PlanRun.objects.select_related("plan", "created_by").defer(
        "problem", "plan__problem", "plan__document"
    )
    serializer_class = PlanRunSerializer
    filterset_fields = ["cluster", "model", "status", "created_at", "flow_tokens_per_s"]
    search_fields = ("cluster__name", "model__name", "what_if")
    action_parameters = {"incumbents": PAGING}

    def get_queryset(self) -> Any:
        rows = super().get_queryset()
        return rows.only(*COLUMNS_OF_LIST) if self.action == "list" else rows

    @extend_schema(request=PlanRunRequestSerializer, responses={202: PlanRunSerializer})
    def create(self, request: Request) -> Response:
        """Queue a search for a plan of the cluster as it is now."""
        asked = PlanRunRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        run = starting.start_plan_run(
            cluster=asked.validated_data["cluster"],
            model=asked.validated_data["model"],
            options=options_from_json(asked.validated_data["options"]),
            user=request.user,
            survive_one_loss=asked.validated_data["survive_one_loss"],
            start_plan=asked.validated_data["start_plan"],
        )
        return _accepted(run, request)

    @extend_schema(request=None, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End the search; the best plan so far is kept."""
        run = self.get_object()
        if not jobs.cancel(run):
            raise Conflict(f"Plan run {pk} is {run.status}; only a queued or running one can be.")
        return Response(PlanRunSerializer(run).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def accept(self, request: Request, pk: str) -> Response:
        """End a running search with the best plan so far, as a success."""
        run = self.get_object()
        if not ending.accept_best_so_far(run):
            raise Conflict(
                f"Plan run {pk} is {run.status} and "
                f"{'has' if run.flow_tokens_per_s is not None else 'has not'} found a placement; "
                "only a running one that has found one can be accepted."
            )
        return Response(PlanRunSerializer(run).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=ExtensionSerializer, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str) -> Response:
        """Queue a run that goes on from where this one ended, on the same problem."""
        asked = ExtensionSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        longer = starting.extend_plan_run(
            self.get_object(), seconds=asked.validated_data["seconds"], user=request.user
        )
        return _accepted(longer, request)

    @extend_schema(responses=ReplanSerializer)
    @action(detail=True)
    def replan(self, request: Request, pk: str) -> Response:
        """The answers of a run that searched around a running plan."""
        asked = Replan.objects.filter(run=self.get_object()).first()
        if asked is None:
            raise Http404(f"Plan run {pk} did not search around a running plan.")
        return Response(ReplanSerializer(asked).data)

    @extend_schema(request=AdoptionSerializer, responses={201: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def adopt(self, request: Request, pk: str) -> Response:
        """Make a plan of another of a replanning's answers; it comes as a finished run."""
        asked = AdoptionSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        adopted = replanning.adopt_point(
            self.get_object(), asked.validated_data["point"], user=request.user
        )
        return Response(PlanRunSerializer(adopted).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses=IncumbentSerializer(many=True))
    @action(detail=True, filter_backends=[])
    def incumbents(self, request: Request, pk: str) -> Response:
        """Every better placement or bound so far, oldest first."""
        rows = self.get_object().incumbents.order_by("pk")
        pages = Pages()
        page = pages.paginate_queryset(rows, request) or []
        return pages.get_paginated_response(IncumbentSerializer(page, many=True).data)


def _accepted(run: PlanRun, request: Request) -> Response:
    where = reverse("api-plan-run-detail", args=[run.pk], request=request)
    return Response(
        PlanRunSerializer(run).data,
        status=status.HTTP_202_ACCEPTED,
        headers={"Location": where},
    )


class PlanViewSet(ReadViewSet[Plan]):
    queryset = Plan.objects.order_by("-pk")
    filterset_fields = ["cluster", "model", "run", "created_at", "flow_tokens_per_s"]
    search_fields = ("cluster__name", "model__name")
    action_parameters = {"compare": ("plan",)}
    may_repeat = frozenset({"plan"})

    def get_queryset(self) -> Any:
        plans = super().get_queryset()
        return plans.defer("problem", "document") if self.action == "list" else plans

    def get_serializer_class(self) -> type[BaseSerializer[Plan]]:
        return PlanSummarySerializer if self.action == "list" else PlanSerializer

    @extend_schema(
        parameters=[
            OpenApiParameter("figure", OpenApiTypes.STR, "path", enum=sorted(FIGURES)),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    @action(detail=True, url_path=r"figures/(?P<figure>[a-z-]+)", filter_backends=[])
    @in_own_turn
    def figures(self, request: Request, pk: str, figure: str) -> Response:
        """One of the plan's charts as Plotly draws it, and its facts as a sentence and a table."""
        if figure not in FIGURES:
            raise Http404(f"There is no figure {figure!r}; use one of: {', '.join(FIGURES)}.")
        chart = figure_of(self.get_object(), figure)
        return Response(
            {
                **chart.figure,
                "summary": chart.summary,
                "columns": chart.columns,
                "rows": chart.rows,
            }
        )

    @extend_schema(request=ReplanRequestSerializer, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def replan(self, request: Request, pk: str) -> Response:
        """Queue a search around this plan on the cluster as it is now, moving few bytes."""
        asked = ReplanRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        run = replanning.start_replan(
            self.get_object(),
            options=options_from_json(asked.validated_data["options"]),
            budget_bytes=asked.validated_data["budget_bytes"],
            user=request.user,
        )
        return _accepted(run, request)

    @extend_schema(responses=UnmovedSerializer)
    @action(detail=True, filter_backends=[])
    @in_own_turn
    def unmoved(self, request: Request, pk: str) -> Response:
        """What this plan's placement carries on the cluster as it is now, no layer moved."""
        plan = self.get_object()
        changes = replanning.changes_since(plan, now=timezone.now())
        options = replace(
            DEFAULTS,
            partial_inference=plan.document["partial_inference"],
            rules=PlacementRules(excluded_nodes=frozenset(changes.silent)),
        )
        return Response(
            UnmovedSerializer(
                {
                    "flow_tokens_per_s": replanning.flow_without_moves(
                        plan, changes, options=options
                    ),
                    "gone": changes.gone,
                    "added": changes.added,
                    "silent": changes.silent,
                    "changes": changes.sentences,
                }
            ).data
        )

    @extend_schema(
        parameters=[OpenApiParameter("plan", OpenApiTypes.INT, many=True, required=True)],
        responses=ComparisonSerializer,
    )
    @action(detail=False, filter_backends=[])
    @in_own_turn
    def compare(self, request: Request) -> Response:
        """Two to four plans side by side: forecast, flow, hops, and which layers lie elsewhere."""
        try:
            rows = imagining.plans_to_compare(request.query_params.getlist("plan"))
        except imagining.NothingToCompare as error:
            raise ValidationError({"plan": [str(error)]}) from error
        return Response(ComparisonSerializer(compare(rows)).data)

    @extend_schema(request=WhatIfSerializer, responses=WhatIfAnswerSerializer)
    @action(detail=True, methods=["post"], url_path="what-if")
    @in_own_turn
    def what_if(self, request: Request, pk: str) -> Response:
        """What this plan is worth on a changed copy of its cluster, by estimate.

        With `options` a search on the copy is queued as well, beginning with the plan.
        """
        asked = WhatIfSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        plan, edits = self.get_object(), asked.edits()
        answer = imagining.answer_what_if(plan, edits)
        run = None
        if asked.validated_data["options"] is not None:
            run = starting.start_what_if(
                plan,
                answer.problem,
                changes=edits.sentence,
                options=options_from_json(asked.validated_data["options"]),
                user=request.user,
            )
        content = {"before": answer.before, "after": answer.after, "run": run and run.pk}
        return Response(WhatIfAnswerSerializer(content).data)

    @extend_schema(responses=ExplanationSerializer)
    @action(detail=True, filter_backends=[])
    def explanation(self, request: Request, pk: str) -> Response:
        """What limits the plan, what survives a loss, what one more of each resource is worth."""
        explanation = explanation_of(self.get_object())
        if explanation is None:
            raise Http404(f"Plan {pk} was never explained; POST to this address to have it done.")
        return Response(ExplanationSerializer(explanation).data)

    @extend_schema(request=ExplanationRequestSerializer, responses={202: ExplanationSerializer})
    @explanation.mapping.post
    def explain(self, request: Request, pk: str) -> Response:
        """Queue an explanation, with a search for each kind of node if seconds are given."""
        asked = ExplanationRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        explanation = explaining.explain_anew(
            self.get_object(), search_s=asked.validated_data["search_s"]
        )
        return Response(
            ExplanationSerializer(explanation).data,
            status=status.HTTP_202_ACCEPTED,
            headers={"Location": reverse("api-plan-explanation", args=[pk], request=request)},
        )

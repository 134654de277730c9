"""REST: plan runs with their incumbents, plans with their figures, mixes and simulations."""

from typing import Any

from django.db.models import Prefetch
from django.http import Http404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import jobs
from helixweb.common.models import Job
from helixweb.common.own_turns import in_own_turn
from helixweb.common.pagination import Pages
from helixweb.common.refusals import Conflict
from helixweb.common.rest.lists import PAGING
from helixweb.common.rest.views import answers, get, post
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.planning import serializers
from helixweb.planning.comparing import NothingToCompare, compare, plans_to_compare
from helixweb.planning.models import ModelMix, Plan, PlanRun, Replan, Simulation
from helixweb.planning.options import SimulationRequest, options_from_json
from helixweb.planning.presentation import FIGURES, explanation_of, plan_context
from helixweb.planning.serializers import (
    ComparisonSerializer,
    PlanRunSerializer,
    WhatIfAnswerSerializer,
    WhatIfSerializer,
)
from helixweb.planning.services import (
    solving,
    starting,
    studies,
)
from helixweb.planning.what_if import Edits, answer_what_if

_begun_run: dict[str, Any] = {"gives": PlanRunSerializer, "begins": "api-plan-run-detail"}


def _cancel(gives: type[BaseSerializer[Any]], doc: str) -> Any:
    """An action that ends a job, and shows it; a Conflict for one that has ended."""

    def cancel(self: Any, row: Job) -> Job:
        if not jobs.cancel(row):
            what = str(row._meta.verbose_name).capitalize()
            raise Conflict(
                f"{what} {row.pk} is {row.status}; only a queued or running one can be cancelled."
            )
        return row

    cancel.__doc__ = doc
    return post(gives, status=202)(cancel)


@needs(VIEWER, OPERATOR)
class PlanRunViewSet(ReadViewSet[PlanRun]):
    queryset = PlanRun.objects.select_related("plan", "created_by")
    serializer_class = PlanRunSerializer
    filterset_fields = ["cluster", "model", "status", "created_at", "flow_tokens_per_s"]
    search_fields = ("cluster__name", "model__name", "what_if")
    action_parameters = {"incumbents": PAGING}

    @answers(**_begun_run, takes=serializers.PlanRunRequestSerializer, of_row=False)
    def create(self, options: dict[str, Any], **asked: Any) -> PlanRun:
        """Queue a search for a plan of the cluster as it is now."""
        return starting.start_plan_run(
            **asked, options=options_from_json(options), user=self.request.user
        )

    cancel = _cancel(PlanRunSerializer, "End the search; the best plan so far is kept.")

    @post(PlanRunSerializer, status=202)
    def accept(self, run: PlanRun) -> PlanRun:
        """End a running search with the best plan so far, as a success."""
        if not solving.accept_best_so_far(run):
            raise Conflict(
                f"Plan run {run.pk} is {run.status} and "
                f"{'has' if run.flow_tokens_per_s is not None else 'has not'} found a placement; "
                "only a running one that has found one can be accepted."
            )
        return run

    @post(**_begun_run, takes=serializers.ExtensionSerializer)
    def extend(self, run: PlanRun, seconds: float) -> PlanRun:
        """Queue a run that goes on from where this one ended, on the same problem."""
        return starting.extend_plan_run(run, seconds=seconds, user=self.request.user)

    @get(serializers.ReplanSerializer)
    def replan(self, run: PlanRun) -> Replan:
        """The answers of a run that searched around a running plan."""
        asked = Replan.unscoped.filter(run=run).first()
        if asked is None:
            raise Http404(f"Plan run {run.pk} did not search around a running plan.")
        return asked

    @post(PlanRunSerializer, takes=serializers.AdoptionSerializer, status=201)
    def adopt(self, run: PlanRun, point: int) -> PlanRun:
        """Make a plan of another of a replanning's answers; it comes as a finished run."""
        return starting.adopt_point(run, point, user=self.request.user)

    @extend_schema(responses=serializers.IncumbentSerializer(many=True))
    @action(detail=True, filter_backends=[])
    def incumbents(self, request: Request, pk: str) -> Response:
        """Every better placement or bound so far, oldest first."""
        rows = self.get_object().incumbents.order_by("pk")
        pages = Pages()
        page = pages.paginate_queryset(rows, request) or []
        return pages.get_paginated_response(serializers.IncumbentSerializer(page, many=True).data)


@needs(VIEWER, OPERATOR)
class PlanViewSet(ReadViewSet[Plan]):
    queryset = Plan.objects.order_by("-pk")
    filterset_fields = ["cluster", "model", "run", "created_at", "flow_tokens_per_s"]
    search_fields = ("cluster__name", "model__name")
    action_parameters = {"compare": ("plan",)}
    may_repeat = frozenset({"plan"})

    def get_serializer_class(self) -> type[BaseSerializer[Plan]]:
        if self.action == "list":
            return serializers.PlanSummarySerializer
        return serializers.PlanSerializer

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
        return Response(getattr(plan_context(self.get_object()), figure).document)

    @post(**_begun_run, takes=serializers.ReplanRequestSerializer)
    def replan(self, plan: Plan, options: dict[str, Any], **asked: Any) -> PlanRun:
        """Queue a search around this plan on the cluster as it is now, moving few bytes."""
        if "objective" not in dict(self.request.data).get("options", {}):
            options |= starting.objective_of(plan)
        return starting.start_replan(
            plan, **asked, options=options_from_json(options), user=self.request.user
        )

    @get(serializers.UnmovedSerializer, in_turn=True)
    def unmoved(self, plan: Plan) -> Any:
        """What this plan's placement carries on the cluster as it is now, no layer moved."""
        return starting.unmoved(plan, now=timezone.now())

    @get(
        ComparisonSerializer, of_row=False, in_turn=True,
        parameters=[OpenApiParameter("plan", OpenApiTypes.INT, many=True, required=True)],
    )  # fmt: skip
    def compare(self) -> Any:
        """Two to four plans side by side: forecast, flow, hops, and which layers lie elsewhere."""
        request = self.request
        try:
            rows = plans_to_compare(request, request.query_params.getlist("plan"))
        except NothingToCompare as error:
            raise ValidationError({"plan": [str(error)]}) from error
        return compare(rows)

    @post(WhatIfAnswerSerializer, takes=WhatIfSerializer, in_turn=True)
    def what_if(self, plan: Plan, options: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
        """What this plan is worth on a changed copy of its cluster, by estimate.

        With `options` a search on the copy is queued as well, beginning with the plan.
        """
        edits = Edits(**changes)
        answer, run = answer_what_if(plan, edits), None
        if options is not None:
            run = starting.start_what_if(
                plan, edits, options=options_from_json(options), user=self.request.user
            )
        return {**answer, "run": run and run.pk}

    @get(serializers.ExplanationSerializer)
    def explanation(self, plan: Plan) -> Any:
        """What limits the plan, what survives a loss, what one more of each resource is worth."""
        explanation = explanation_of(plan)
        if explanation is None:
            raise Http404(
                f"Plan {plan.pk} was never explained; POST to this address to have it done."
            )
        return explanation

    @explanation.mapping.post  # type: ignore[untyped-decorator]
    @answers(
        serializers.ExplanationSerializer, takes=serializers.ExplanationRequestSerializer,
        begins="api-plan-explanation", begun="plan_id",
    )  # fmt: skip
    def explain(self, plan: Plan, search_s: float) -> Any:
        """Queue an explanation, with a search for each kind of node if seconds are given."""
        return studies.explain_again(plan, search_s=search_s)


@needs(VIEWER, OPERATOR)
class ModelMixViewSet(ReadViewSet[ModelMix]):
    queryset = ModelMix.objects.select_related("created_by").prefetch_related(
        "shares", Prefetch("runs", PlanRun.objects.order_by("pk"))
    )
    serializer_class = serializers.ModelMixSerializer
    filterset_fields = ["cluster", "status", "created_at"]
    search_fields = ("cluster__name",)

    @answers(
        serializers.ModelMixSerializer, takes=serializers.ModelMixRequestSerializer,
        begins="api-model-mix-detail", of_row=False,
    )  # fmt: skip
    def create(self, models: list[Any], options: dict[str, Any], **asked: Any) -> ModelMix:
        """Queue a plan for each of several models, no two of which use a node."""
        return studies.start_model_mix(
            weights={row["model"]: row["weight"] for row in models},
            options=options_from_json(options),
            user=self.request.user,
            **asked,
        )

    cancel = _cancel(serializers.ModelMixSerializer, "End the search; what it has is kept.")


@needs(VIEWER, OPERATOR)
class SimulationViewSet(ReadViewSet[Simulation]):
    queryset = Simulation.objects.select_related("created_by", "plan")
    serializer_class = serializers.SimulationSerializer
    filterset_fields = ["plan", "status", "workload", "policy", "created_at"]
    search_fields = ("plan__cluster__name", "plan__model__name")

    @answers(
        serializers.SimulationSerializer, takes=serializers.SimulationRequestSerializer,
        begins="api-simulation-detail", of_row=False,
    )  # fmt: skip
    def create(self, plan: Plan, **asked: Any) -> Simulation:
        """Queue a simulation of a plan."""
        return studies.start_simulation(plan, SimulationRequest(**asked), user=self.request.user)

    cancel = _cancel(serializers.SimulationSerializer, "End a simulation; nothing of it is kept.")

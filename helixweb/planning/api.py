"""REST: plan runs with their incumbents, plans with their figures, mixes and simulations."""

from typing import Any, TypeVar

from django.db.models import Prefetch
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

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import jobs
from helixweb.common.models import Job
from helixweb.common.own_turns import in_own_turn
from helixweb.common.pagination import Pages
from helixweb.common.refusals import Conflict
from helixweb.common.rest.lists import PAGING
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.planning import serializers
from helixweb.planning.comparing import NothingToCompare, compare, plans_to_compare
from helixweb.planning.models import ModelMix, Plan, PlanRun, Replan, Simulation
from helixweb.planning.options import SimulationRequest, options_from_json
from helixweb.planning.presentation import FIGURES, explanation_of, plan_context
from helixweb.planning.serializers import PlanRunSerializer
from helixweb.planning.services import (
    explaining,
    mixing,
    replanning,
    simulating,
    solving,
    starting,
)
from helixweb.planning.what_if import Edits, answer_what_if

Row = TypeVar("Row", bound=Job)


def asked_of(serializer: type[BaseSerializer[Any]], request: Request) -> Any:
    """The body of the request, checked."""
    given = serializer(data=request.data, context={"request": request})
    given.is_valid(raise_exception=True)
    return given.validated_data


def queued(content: Any, request: Request, route: str, pk: object) -> Response:
    """The answer to a request that starts a job, which is found at the row `pk` of the route."""
    return Response(
        content,
        status=status.HTTP_202_ACCEPTED,
        headers={"Location": reverse(route, args=[pk], request=request)},
    )


def run_queued(run: PlanRun, request: Request) -> Response:
    return queued(PlanRunSerializer(run).data, request, "api-plan-run-detail", run.pk)


class JobViewSet(ReadViewSet[Row]):
    """Jobs that are read and cancelled."""

    def cancelled(self) -> Response:
        row = self.get_object()
        if not jobs.cancel(row):
            what = str(row._meta.verbose_name).capitalize()
            raise Conflict(
                f"{what} {row.pk} is {row.status}; only a queued or running one can be cancelled."
            )
        return Response(self.get_serializer(row).data, status=status.HTTP_202_ACCEPTED)


@needs(VIEWER, OPERATOR)
class PlanRunViewSet(JobViewSet[PlanRun]):
    queryset = PlanRun.objects.select_related("plan", "created_by")
    serializer_class = PlanRunSerializer
    filterset_fields = ["cluster", "model", "status", "created_at", "flow_tokens_per_s"]
    search_fields = ("cluster__name", "model__name", "what_if")
    action_parameters = {"incumbents": PAGING}

    @extend_schema(request=serializers.PlanRunRequestSerializer, responses={202: PlanRunSerializer})
    def create(self, request: Request) -> Response:
        """Queue a search for a plan of the cluster as it is now."""
        asked = asked_of(serializers.PlanRunRequestSerializer, request)
        options = options_from_json(asked.pop("options"))
        return run_queued(
            starting.start_plan_run(**asked, options=options, user=request.user), request
        )

    @extend_schema(request=None, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End the search; the best plan so far is kept."""
        return self.cancelled()

    @extend_schema(request=None, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def accept(self, request: Request, pk: str) -> Response:
        """End a running search with the best plan so far, as a success."""
        run = self.get_object()
        if not solving.accept_best_so_far(run):
            raise Conflict(
                f"Plan run {pk} is {run.status} and "
                f"{'has' if run.flow_tokens_per_s is not None else 'has not'} found a placement; "
                "only a running one that has found one can be accepted."
            )
        return Response(PlanRunSerializer(run).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=serializers.ExtensionSerializer, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str) -> Response:
        """Queue a run that goes on from where this one ended, on the same problem."""
        asked = asked_of(serializers.ExtensionSerializer, request)
        longer = starting.extend_plan_run(self.get_object(), **asked, user=request.user)
        return run_queued(longer, request)

    @extend_schema(responses=serializers.ReplanSerializer)
    @action(detail=True)
    def replan(self, request: Request, pk: str) -> Response:
        """The answers of a run that searched around a running plan."""
        asked = Replan.unscoped.filter(run=self.get_object()).first()
        if asked is None:
            raise Http404(f"Plan run {pk} did not search around a running plan.")
        return Response(serializers.ReplanSerializer(asked).data)

    @extend_schema(request=serializers.AdoptionSerializer, responses={201: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def adopt(self, request: Request, pk: str) -> Response:
        """Make a plan of another of a replanning's answers; it comes as a finished run."""
        point = asked_of(serializers.AdoptionSerializer, request)["point"]
        adopted = replanning.adopt_point(self.get_object(), point, user=request.user)
        return Response(PlanRunSerializer(adopted).data, status=status.HTTP_201_CREATED)

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
        chart = getattr(plan_context(self.get_object()), figure)
        told = {name: getattr(chart, name) for name in ("summary", "columns", "rows")}
        return Response({**chart.figure, **told})

    @extend_schema(request=serializers.ReplanRequestSerializer, responses={202: PlanRunSerializer})
    @action(detail=True, methods=["post"])
    def replan(self, request: Request, pk: str) -> Response:
        """Queue a search around this plan on the cluster as it is now, moving few bytes."""
        asked = asked_of(serializers.ReplanRequestSerializer, request)
        options = options_from_json(asked.pop("options"))
        run = replanning.start_replan(
            self.get_object(), **asked, options=options, user=request.user
        )
        return run_queued(run, request)

    @extend_schema(responses=serializers.UnmovedSerializer)
    @action(detail=True, filter_backends=[])
    @in_own_turn
    def unmoved(self, request: Request, pk: str) -> Response:
        """What this plan's placement carries on the cluster as it is now, no layer moved."""
        found = replanning.unmoved(self.get_object(), now=timezone.now())
        return Response(serializers.UnmovedSerializer(found).data)

    @extend_schema(
        parameters=[OpenApiParameter("plan", OpenApiTypes.INT, many=True, required=True)],
        responses=serializers.ComparisonSerializer,
    )
    @action(detail=False, filter_backends=[])
    @in_own_turn
    def compare(self, request: Request) -> Response:
        """Two to four plans side by side: forecast, flow, hops, and which layers lie elsewhere."""
        try:
            rows = plans_to_compare(request, request.query_params.getlist("plan"))
        except NothingToCompare as error:
            raise ValidationError({"plan": [str(error)]}) from error
        return Response(serializers.ComparisonSerializer(compare(rows)).data)

    @extend_schema(
        request=serializers.WhatIfSerializer, responses=serializers.WhatIfAnswerSerializer
    )
    @action(detail=True, methods=["post"], url_path="what-if")
    @in_own_turn
    def what_if(self, request: Request, pk: str) -> Response:
        """What this plan is worth on a changed copy of its cluster, by estimate.

        With `options` a search on the copy is queued as well, beginning with the plan.
        """
        asked = asked_of(serializers.WhatIfSerializer, request)
        plan, options, edits = self.get_object(), asked.pop("options"), Edits(**asked)
        answer, run = answer_what_if(plan, edits), None
        if options is not None:
            options = options_from_json(options)
            run = starting.start_what_if(plan, edits, options=options, user=request.user)
        content = {**answer, "run": run and run.pk}
        return Response(serializers.WhatIfAnswerSerializer(content).data)

    @extend_schema(responses=serializers.ExplanationSerializer)
    @action(detail=True, filter_backends=[])
    def explanation(self, request: Request, pk: str) -> Response:
        """What limits the plan, what survives a loss, what one more of each resource is worth."""
        explanation = explanation_of(self.get_object())
        if explanation is None:
            raise Http404(f"Plan {pk} was never explained; POST to this address to have it done.")
        return Response(serializers.ExplanationSerializer(explanation).data)

    @extend_schema(
        request=serializers.ExplanationRequestSerializer,
        responses={202: serializers.ExplanationSerializer},
    )
    @explanation.mapping.post
    def explain(self, request: Request, pk: str) -> Response:
        """Queue an explanation, with a search for each kind of node if seconds are given."""
        asked = asked_of(serializers.ExplanationRequestSerializer, request)
        row = explaining.explain_again(self.get_object(), **asked)
        shown = serializers.ExplanationSerializer(row).data
        return queued(shown, request, "api-plan-explanation", pk)


@needs(VIEWER, OPERATOR)
class ModelMixViewSet(JobViewSet[ModelMix]):
    queryset = ModelMix.objects.select_related("created_by").prefetch_related(
        "shares", Prefetch("runs", PlanRun.objects.order_by("pk"))
    )
    serializer_class = serializers.ModelMixSerializer
    filterset_fields = ["cluster", "status", "created_at"]
    search_fields = ("cluster__name",)

    @extend_schema(
        request=serializers.ModelMixRequestSerializer,
        responses={202: serializers.ModelMixSerializer},
    )
    def create(self, request: Request) -> Response:
        """Queue a plan for each of several models, no two of which use a node."""
        asked = asked_of(serializers.ModelMixRequestSerializer, request)
        mix = mixing.start_model_mix(
            cluster=asked["cluster"],
            weights={row["model"]: row["weight"] for row in asked["models"]},
            options=options_from_json(asked["options"]),
            user=request.user,
        )
        return queued(self.get_serializer(mix).data, request, "api-model-mix-detail", mix.pk)

    @extend_schema(request=None, responses={202: serializers.ModelMixSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End the search; what it has is kept."""
        return self.cancelled()


@needs(VIEWER, OPERATOR)
class SimulationViewSet(JobViewSet[Simulation]):
    queryset = Simulation.objects.select_related("created_by", "plan")
    serializer_class = serializers.SimulationSerializer
    filterset_fields = ["plan", "status", "workload", "policy", "created_at"]
    search_fields = ("plan__cluster__name", "plan__model__name")

    @extend_schema(
        request=serializers.SimulationRequestSerializer,
        responses={202: serializers.SimulationSerializer},
    )
    def create(self, request: Request) -> Response:
        """Queue a simulation of a plan."""
        asked = asked_of(serializers.SimulationRequestSerializer, request)
        plan = asked.pop("plan")
        row = simulating.start_simulation(plan, SimulationRequest(**asked), user=request.user)
        return queued(self.get_serializer(row).data, request, "api-simulation-detail", row.pk)

    @extend_schema(request=None, responses={202: serializers.SimulationSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End a simulation; nothing of it is kept."""
        return self.cancelled()

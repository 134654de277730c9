"""Pages of settings that need to know the planner: the site's jobs, and what it is made of.

Jobs are in a table for each kind; their union is ordered and cut by the database.
"""

import platform
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import django
from django.core.cache import cache
from django.db import connection
from django.db.models import CharField, Count, F, IntegerField, Min, Q, QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from helixweb.access.needs import VIEWER, needs
from helixweb.common.jobs import KINDS
from helixweb.common.models import Job
from helixweb.common.pages import page_of
from helixweb.inventory.models import Cluster, Node
from helixweb.planning.models import Plan, PlanRun

COLUMNS = (
    "kind", "id", "shown_by", "status", "attempt", "error", "created_at", "started_at",
    "finished_at", "lease_expires_at",
)  # fmt: skip
# Asking Gurobi for its licence takes a while, and it seldom changes.
SOLVERS_KEPT_S = 600
# Without a licence Gurobi takes models of so many variables and rows.
SIZE_LIMIT = 2000


@needs(VIEWER)
def jobs_page(request: HttpRequest) -> HttpResponse:
    """`?kind=`, `?status=`: what waits, runs, failed."""
    kind, status = request.GET.get("kind", ""), request.GET.get("status", "")
    now = timezone.now()
    context = {
        "page": page_of(request, jobs(request, kind=kind, status=status)),
        "queues": [queue(request, name, now=now) for name in KINDS],
        "kinds": list(KINDS),
        "statuses": Job.Status.values,
        "kind": kind,
        "status": status,
    }
    return render(request, "planning/jobs.html", context)


@needs(VIEWER)
def about(request: HttpRequest) -> HttpResponse:
    """Versions, solvers with their licences, database, and how much there is of everything."""
    context = {
        "versions": {
            # A checkout that is run without being installed has none.
            "HelixWeb": _version("helixweb") or _("not installed: runs from a checkout"),
            "Python": platform.python_version(),
            "Django": django.get_version(),
        },
        "solvers": cache.get_or_set(
            f"solver-states:{get_language()}", solver_states, SOLVERS_KEPT_S
        ),
        "database": connection.vendor,
        "last_solver": PlanRun.objects.within(request)
        .exclude(solver="")
        .values_list("solver", flat=True)
        .order_by("-pk")
        .first(),
        "counts": {
            _("Clusters"): Cluster.objects.within(request).count(),
            _("Nodes"): Node.objects.within(request).count(),
            _("Searches"): PlanRun.objects.within(request).count(),
            _("Plans"): Plan.objects.within(request).count(),
        },
    }
    return render(request, "planning/about.html", context)


def jobs(scope: Any, *, kind: str = "", status: str = "") -> QuerySet[Any, dict[str, Any]]:
    """The newest first, as dictionaries of COLUMNS."""
    first, *others = [_part(scope, name, status) for name in ([kind] if kind in KINDS else KINDS)]
    union = first.union(*others, all=True) if others else first
    return union.order_by("-created_at", "-id")


def _part(scope: Any, kind: str, status: str) -> QuerySet[Any, dict[str, Any]]:
    shown_by = KINDS[kind].shown_by
    found = _rows(scope, kind)
    if status in Job.Status.values:
        found = found.filter(status=status)
    matching: QuerySet[Any, dict[str, Any]] = found.annotate(
        kind=Value(kind, output_field=CharField()),
        shown_by=F(shown_by) if shown_by != "pk" else F("id") + Value(0, IntegerField()),
    ).values(*COLUMNS)
    return matching


def _rows(scope: Any, kind: str) -> QuerySet[Any]:
    rows: Any = KINDS[kind].model._default_manager
    return rows.within(scope).order_by()  # type: ignore[no-any-return]


def queue(scope: Any, kind: str, *, now: datetime) -> dict[str, Any]:
    """Counts of a kind's jobs by status; `oldest_s`: how long the first in the queue has waited."""
    found: dict[str, Any] = _rows(scope, kind).aggregate(
        **{name: Count("pk", filter=Q(status=name)) for name in ("queued", "running", "failed")},
        oldest=Min("created_at", filter=Q(status="queued")),
    )
    oldest = found.pop("oldest")
    waits_s = None if oldest is None else (now - oldest).total_seconds()
    return {"kind": kind, **found, "oldest_s": waits_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverState:
    """One solver; `version` empty: not installed. `expires`: YYYY-MM-DD, empty: not known."""

    name: str
    version: str
    licence: str
    expires: str = ""
    is_limited: bool = False


def solver_states() -> tuple[SolverState, ...]:
    """HiGHS and Gurobi; asks Gurobi for its licence, which may take a second."""
    free = _("free software (MIT), without limits")
    return SolverState(name="HiGHS", version=_version("highspy"), licence=free), _gurobi()


def _gurobi() -> SolverState:
    name, found = "Gurobi", _version("gurobipy")
    if not found:
        return SolverState(name=name, version="", licence=_("not installed: HiGHS searches"))
    import gurobipy  # loads slowly, and only this page needs it in the web process

    try:
        with gurobipy.Env(empty=True) as environment:
            environment.setParam("OutputFlag", 0)
            environment.start()
            with gurobipy.Model(env=environment) as model:
                day = f"{model.LicenseExpiration:08d}"
                is_limited = _is_limited(gurobipy, model)
    except gurobipy.GurobiError as error:
        licence = _("no usable licence: %(error)s") % {"error": error}
        return SolverState(name=name, version=found, licence=licence)
    licence = _("without size limit")
    if is_limited:
        licence = _("limited to %(size_limit)s variables and rows; HiGHS searches beyond") % {
            "size_limit": f"{SIZE_LIMIT:,}"
        }
    expires = f"{day[:4]}-{day[4:6]}-{day[6:]}" if len(day) == 8 and day < "9" else ""
    return SolverState(
        name=name, version=found, licence=licence, expires=expires, is_limited=is_limited
    )


def _is_limited(gurobipy: Any, model: Any) -> bool:
    """Solves a model that is one variable too large for a licence with limits."""
    model.addMVar(SIZE_LIMIT + 1)
    try:
        model.optimize()
    except gurobipy.GurobiError as error:
        if error.errno != gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
            raise
        return True
    return False


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

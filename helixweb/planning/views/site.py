"""Pages of settings that need to know the planner: the site's jobs, and what it is made of."""

import platform
from importlib.metadata import PackageNotFoundError, version

import django
from django.core.cache import cache
from django.core.paginator import Paginator
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access.needs import VIEWER, needs
from helixweb.common.jobs import KINDS
from helixweb.common.models import Job
from helixweb.inventory.models import Cluster, Node
from helixweb.planning.job_list import jobs, queues
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.solver_state import solver_states

JOBS_PER_PAGE = 50
# Asking Gurobi for its licence takes a while, and it seldom changes.
SOLVERS_KEPT_S = 600


@needs(VIEWER)
@never_cache
def jobs_page(request: HttpRequest) -> HttpResponse:
    """`?kind=`, `?status=`: what waits, runs, failed."""
    kind, status = request.GET.get("kind", ""), request.GET.get("status", "")
    now = timezone.now()
    page = Paginator(jobs(request, kind=kind, status=status), JOBS_PER_PAGE).get_page(
        request.GET.get("page")
    )
    context = {
        "page": page,
        "queues": queues(request, now=now),
        "kinds": list(KINDS),
        "statuses": Job.Status.values,
        "kind": kind,
        "status": status,
    }
    return render(request, "planning/jobs.html", context)


@needs(VIEWER)
@never_cache
def about(request: HttpRequest) -> HttpResponse:
    """Versions, solvers with their licences, database, and how much there is of everything."""
    context = {
        "versions": {
            "HelixWeb": _own_version(),
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


def _own_version() -> str:
    """A checkout that is run without being installed has none."""
    try:
        return version("helixweb")
    except PackageNotFoundError:
        return _("not installed: runs from a checkout")

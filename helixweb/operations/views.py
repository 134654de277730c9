"""`/readyz` for load balancers and probes; `/join.sh` for machines that join."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.operations import join_script as joining
from helixweb.operations.health import site_health, status_of


@login_not_required
@never_cache
@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and is migrated; `checks` tells of the other parts too."""
    checks = site_health(timezone.now())
    status = status_of(checks)
    content = {"status": status, "checks": checks}
    return JsonResponse(content, status=200 if status == "ok" else 503)


@login_not_required
@never_cache
@require_GET
def join_script(request: HttpRequest) -> HttpResponse:
    """A shell script that installs the agent and joins; it holds no secret."""
    return HttpResponse(joining.join_script(), content_type="text/x-shellscript; charset=utf-8")


@login_not_required
@require_GET
def join_source(request: HttpRequest) -> HttpResponse:
    """The source of this version, which `join.sh` installs; public, as its licence is."""
    return HttpResponse(joining.source_archive(), content_type="application/gzip")

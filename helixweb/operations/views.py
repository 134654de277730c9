"""`/readyz`: for load balancers, probes and whoever waits for a site to come up."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.operations.health import site_health


@login_not_required
@never_cache
@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and is migrated; `checks` tells of the other parts too."""
    health = site_health(timezone.now())
    content = {"status": health.status, "checks": health.checks()}
    return JsonResponse(content, status=200 if health.is_ready else 503)

"""What a person says to a placement that is offered after a node was lost or joined."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from helixweb.common.refusals import Conflict
from helixweb.deployment.models import Repair
from helixweb.deployment.services import deploying, repairing


@require_POST
def repair_deploy(request: HttpRequest, pk: int) -> HttpResponse:
    """Deploy the placement that is offered."""
    row = _repair(pk)
    try:
        deployment = repairing.accept(row, user=request.user, now=timezone.now())
    except deploying.DeployRefused as error:
        messages.error(request, str(error))
    except Conflict as error:
        messages.error(request, str(error))
    else:
        return redirect("deployment", deployment.pk)
    return redirect("deployment", row.deployment_id)


@require_POST
def repair_dismiss(request: HttpRequest, pk: int) -> HttpResponse:
    """Leave the layers where they are."""
    row = _repair(pk)
    try:
        repairing.dismiss(row, user=request.user)
    except Conflict as error:
        messages.error(request, str(error))
    return redirect("deployment", row.deployment_id)


def _repair(pk: int) -> Repair:
    return get_object_or_404(
        Repair.objects.select_related("deployment__cluster", "run__plan__model"), pk=pk
    )

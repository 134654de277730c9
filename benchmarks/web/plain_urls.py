"""Lists as anybody would write them with Django alone: the same columns, and no more."""

from typing import Any

from django.apps import apps
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET

MODELS = {
    "nodes": "inventory.Node", "links": "inventory.Link", "changes": "inventory.Change",
    "plan-runs": "planning.PlanRun", "requests": "monitoring.TracedRequest",
}  # fmt: skip
# What no list shows.
HEAVY = {"problem", "detail", "path", "transfers_s", "credential_hash", "data_public_key"}


@require_GET
def rows(request: HttpRequest, name: str) -> JsonResponse:
    model: Any = apps.get_model(MODELS[name])
    shown = [field.attname for field in model._meta.concrete_fields if field.name not in HEAVY]
    found = model._base_manager.order_by("pk").values(*shown)[: int(request.GET["limit"])]
    return JsonResponse({"results": list(found)})


urlpatterns = [path("plain/<str:name>/", rows)]

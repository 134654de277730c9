"""Endpoints and keys that were stored before they were checked make orders unreadable."""

from typing import Any

from django.db import migrations
from pydantic import ValidationError

from runtime.protocol.control import PeerAddress

_SERVING = ("deploying", "ready", "degraded", "failed")


def _is_usable(peer: dict[str, Any]) -> bool:
    try:
        PeerAddress.model_validate(peer)
    except ValidationError:
        return False
    return True


def refuse_unusable_addresses(apps: Any, _schema_editor: Any) -> None:
    """Processes with such an address must join again; deployments that name one are stopped."""
    for name in ("Node", "Coordinator"):
        processes = apps.get_model("inventory", name).objects.filter(joined_at__isnull=False)
        for row in processes.only("data_endpoint", "data_public_key").iterator():
            peer = {
                "name": name, "endpoint": row.data_endpoint, "public_key": row.data_public_key,
            }  # fmt: skip
            if not _is_usable(peer):
                processes.filter(pk=row.pk).update(
                    joined_at=None, credential_hash="", data_endpoint="", data_public_key=""
                )
    deployments = apps.get_model("deployment", "Deployment").objects.filter(status__in=_SERVING)
    for row in deployments.only("serving_plan", "coordinator_peers").iterator():
        for peer in (*row.serving_plan.get("peers", ()), *row.coordinator_peers):
            if not _is_usable(peer):
                deployments.filter(pk=row.pk).update(
                    status="stopped",
                    message=f"{peer.get('name')} has the address {peer.get('endpoint')}, which "
                    "cannot be dialled; join it again with a valid --data-host, then deploy again",
                )
                break


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0014_lost_in_the_timeline"),
        ("inventory", "0013_memory_at_the_models_ends"),
    ]

    operations = [migrations.RunPython(refuse_unusable_addresses, migrations.RunPython.noop)]

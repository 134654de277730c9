"""Beat's task that shows that messages get through, and the file that says a worker is ready."""

import os
import platform
from pathlib import Path
from typing import Any

from celery import shared_task, signals
from django.utils import timezone

from helixweb.operations.models import Pulse
from helixweb.versions import product_version

READY_FILE = "HELIX_READY_FILE"


@shared_task
def beat_pulse() -> None:
    """Beat: record a pulse, which proves that beat, broker, worker and database work."""
    seen = {"process_id": os.getpid(), "version": product_version(), "at": timezone.now()}
    Pulse.objects.update_or_create(host=platform.node()[:255], defaults=seen)


@signals.worker_ready.connect
def say_ready(**_: Any) -> None:
    """Make the file that the parent of this worker named and waits for."""
    if name := os.environ.get(READY_FILE):
        Path(name).touch()

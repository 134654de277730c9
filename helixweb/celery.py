"""The Celery application: `celery -A helixweb worker -B`."""

import logging
import os
import threading
import time

from celery import Celery, signals

from helixweb.django_loading import django_loaded
from runtime.protocol.logs import JsonLines

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
# Django's checks import every page and the REST API, which a worker does not need. `helixweb
# doctor` runs them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


@signals.import_modules.connect  # before Celery's own way of setting Django up
def load_tasks(**_: object) -> None:
    with django_loaded():
        app.autodiscover_tasks(force=True)


app = Celery("helixweb")
app.config_from_object("django.conf:settings", namespace="CELERY")

_LOOKS_EVERY_S = 1.0
_worker_pid = 0


@signals.celeryd_init.connect
def log_as_worker(**_: object) -> None:
    """What it starts, its pool and beat, has that name from it; beat then takes its own."""
    _log_as("worker")


@signals.beat_init.connect
@signals.beat_embedded_init.connect
def log_as_beat(**_: object) -> None:
    _log_as("beat")


def _log_as(process: str) -> None:
    """The settings took this process for a web process."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.process = process


@signals.worker_init.connect
def remember_the_worker(**_: object) -> None:
    """Store the worker's process id for its children, which may start after its end."""
    global _worker_pid
    _worker_pid = os.getpid()


@signals.beat_embedded_init.connect
def end_with_the_worker(**_: object) -> None:
    """End beat with its parent, `worker -B`: if it outlived a killed worker, it would run for ever
    beside that of the next."""

    def watch() -> None:
        while os.getppid() == _worker_pid:
            time.sleep(_LOOKS_EVERY_S)
        os._exit(0)

    threading.Thread(target=watch, name="worker watch", daemon=True).start()

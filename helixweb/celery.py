"""The Celery application: `celery -A helixweb worker -B`."""

import os
import threading
import time

from celery import Celery, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")

app = Celery("helixweb")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

_LOOKS_EVERY_S = 1.0


@signals.beat_embedded_init.connect
def end_with_the_worker(**_: object) -> None:
    """Beat is a child of `worker -B`; one that outlived a killed worker would go on for ever beside
    that of the next."""
    worker = os.getppid()

    def watch() -> None:
        while os.getppid() == worker:
            time.sleep(_LOOKS_EVERY_S)
        os._exit(0)

    threading.Thread(target=watch, name="worker watch", daemon=True).start()

"""The Celery application: `celery -A helixweb worker -B`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")

app = Celery("helixweb")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

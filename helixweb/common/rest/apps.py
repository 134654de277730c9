"""An app of its own for the table of kept answers."""

from django.apps import AppConfig


class RestConfig(AppConfig):
    name = "helixweb.common.rest"
    label = "rest"
    default_auto_field = "django.db.models.BigAutoField"

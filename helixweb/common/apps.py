from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "helixweb.common"
    label = "common"

    def ready(self) -> None:
        # The web sends messages too: without our Celery app, tasks would go to Celery's default one.
        from helixweb import celery  # noqa: F401 - becomes the current app
        from helixweb.common import schema  # noqa: F401 - registers itself

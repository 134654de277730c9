from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "helixweb.common"

    def ready(self) -> None:
        # The web sends messages too; without our app they would go to Celery's default broker.
        from helixweb import celery  # noqa: F401 - becomes the current app
        from helixweb.common import task_request_ids

        task_request_ids.connect()

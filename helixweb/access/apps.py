from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "helixweb.access"

    def ready(self) -> None:
        from helixweb.access import sessions  # noqa: F401 - listens to log-ins

from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "helixweb.common"
    label = "common"

    def ready(self) -> None:
        from helixweb.common import schema  # noqa: F401 - registers itself

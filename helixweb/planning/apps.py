from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "helixweb.planning"
    label = "planning"

    def ready(self) -> None:
        from helixweb.common.tasks import register_leased
        from helixweb.planning.tasks import WAKE

        for kind, wake in WAKE.items():
            register_leased(kind, wake)

from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "helixweb.planning"
    label = "planning"

    def ready(self) -> None:
        from helixweb.common.deferred import deferred
        from helixweb.common.tasks import register_leased
        from helixweb.planning.models import Explanation, ModelMix, PlanRun, Simulation

        for kind, wake in (
            (PlanRun, "wake_plan_run"),
            (ModelMix, "wake_model_mix"),
            (Explanation, "wake_explanation"),
            (Simulation, "wake_simulation"),
        ):
            register_leased(kind, deferred(f"helixweb.planning.tasks.{wake}"))

from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "helixweb.planning"
    label = "planning"

    def ready(self) -> None:
        from helixweb.common.tasks import register_leased
        from helixweb.planning.models import Explanation, ModelMix, PlanRun, Simulation
        from helixweb.planning.tasks import (
            wake_explanation,
            wake_model_mix,
            wake_plan_run,
            wake_simulation,
        )

        register_leased(PlanRun, wake_plan_run)
        register_leased(Explanation, wake_explanation)
        register_leased(ModelMix, wake_model_mix)
        register_leased(Simulation, wake_simulation)

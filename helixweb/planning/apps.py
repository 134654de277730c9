from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "helixweb.planning"

    def ready(self) -> None:
        from helixweb.common.deferred import deferred
        from helixweb.common.jobs import Kind, register
        from helixweb.planning.models import Explanation, ModelMix, PlanRun, Simulation

        # The work imports most of the planner: every process sends jobs, few work on them.
        planning = "helixweb.planning.services"
        for name, model, work, turn, shown_by in (
            ("search", PlanRun, "solving.solve", "search", "pk"),
            ("explanation", Explanation, "studies.explain", "after", "plan__run_id"),
            ("simulation", Simulation, "studies.simulate", "after", "plan__run_id"),
            ("mix", ModelMix, "studies.plan_mix", "search", "pk"),
        ):
            work_of = deferred(f"{planning}.{work}")
            register(Kind(name=name, model=model, work=work_of, turn=turn, shown_by=shown_by))

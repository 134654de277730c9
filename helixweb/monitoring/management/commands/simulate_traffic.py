"""`manage.py simulate_traffic [PLAN]`: live pages without a machine, marked as simulated."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from helixweb.common.management.site_command import SiteCommand
from helixweb.monitoring.simulated_traffic import TrafficOptions, demo_plan, simulate_traffic
from helixweb.planning.models import Plan
from planner import PlannerError


class Command(SiteCommand):
    help = (
        "Serve simulated requests by a plan and show them on the monitor, marked as simulated. "
        "Without PLAN: by one of a demo cluster of 24 mixed GPUs, made and planned if need be."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        defaults = TrafficOptions()
        parser.add_argument("plan", nargs="?", type=int, metavar="PLAN", help="id of a plan")
        parser.add_argument(
            "--share", type=float, default=defaults.share, help="of the plan's peak"
        )
        parser.add_argument(
            "--speed", type=float, default=defaults.speed, help="simulated seconds in a second"
        )
        parser.add_argument("--duration", type=float, default=defaults.duration_s, metavar="S")
        parser.add_argument("--seed", type=int, default=defaults.seed)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            traffic = TrafficOptions(
                share=options["share"],
                speed=options["speed"],
                duration_s=options["duration"],
                seed=options["seed"],
            )
            plan = self._plan(options["plan"])
            self.stdout.write(
                f"Simulated traffic by plan {plan.pk} of cluster {plan.cluster}; see /monitor/"
                f"?cluster={plan.cluster_id}. Ctrl+C ends it."
            )
            simulate_traffic(plan, options=traffic)
        except PlannerError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            self.stdout.write("Ended.")

    def _plan(self, pk: int | None) -> Plan:
        if pk is None:
            self.stdout.write("Looking for the demo cluster; its plan takes some seconds.")
            return demo_plan()
        plan = Plan.unscoped.filter(pk=pk).select_related("cluster").first()
        if plan is None:
            raise CommandError(f"There is no plan {pk}; the list of plans has their numbers.")
        return plan

"""What plans with whole-model instances are expected to write, which their simulation does not say.

It takes the instances for stages that hold all layers.
"""

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from helixweb.inventory.models import Cluster
from helixweb.planning.expected import output_forecast
from helixweb.planning.models import Simulation
from helixweb.planning.services.studies import forecast_to_json
from helixweb.planning.stored import stored_plan
from planner.domain.instance import PlanMethod
from tests.helixweb.instance_doubles import Instances
from tests.helixweb.simulated_forecast import FORECAST

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.mark.parametrize(("method", "whole"), [("instances", 2), ("mixed", 1)])
def test_what_is_measured_of_instances_is_held_against_what_was_predicted_of_them(
    browser: Client, cluster: Cluster, user: Any, method: PlanMethod, whole: int
) -> None:
    row = Instances(cluster, user, whole=whole, method=method).plan
    Simulation.objects.create(
        plan=row, status=Simulation.Status.SUCCEEDED, forecast=forecast_to_json(FORECAST)
    )
    plan = stored_plan(row)
    choice = plan.method_choice
    assert plan.instances
    predicted = {one.method: one.output_tokens_per_s for one in choice.candidates}
    assert output_forecast(row, plan) == pytest.approx(predicted[choice.chosen])
    page = browser.get(f"/plans/by-id/{row.pk}/simulations").content.decode()
    names = ", ".join(sorted({one.node for one in plan.instances}))
    assert f"The instances of {names} are simulated as stages that hold all layers" in page


def test_of_pipelines_without_a_forecast_nothing_is_expected(cluster: Cluster, user: Any) -> None:
    row = Instances(cluster, user, whole=2, method="instances").plan
    plan = stored_plan(row)
    first, _ = plan.instances
    beside = replace(plan, instances=(first,), method_choice=None)  # the other one holds a stage
    assert output_forecast(row, beside) is None
    alone = replace(plan, method_choice=None)
    assert output_forecast(row, alone) == sum(one.output_tokens_per_s for one in plan.instances)

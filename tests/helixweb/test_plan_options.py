"""Plan options as JSON columns keep them."""

from datetime import timedelta

from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.stored import stored_plan
from tests.helixweb.looking import fresh


def test_a_plan_stored_before_plans_had_their_hop_limit_takes_that_of_its_search(
    plan: Plan,
) -> None:
    assert stored_plan(plan).max_hops is None
    PlanRun.unscoped.filter(pk=plan.run.pk).update(
        options=plan.run.options | {"rules": plan.run.options["rules"] | {"max_hops": 2}}
    )
    Plan.unscoped.filter(pk=plan.pk).update(created_at=plan.created_at + timedelta(days=1))
    assert "max_hops" not in fresh(plan).document
    assert stored_plan(plan).max_hops == 2

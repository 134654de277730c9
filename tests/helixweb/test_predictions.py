"""What was predicted of a deployment is held against what it does, in words and by REST."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment, Status
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Origin, Profile
from helixweb.inventory.services import profile_versions
from helixweb.monitoring import predicting, views
from helixweb.monitoring.agreement import (
    LINK_OFF,
    Agreement,
    Compared,
    NodeSteps,
    Quantity,
    agreement_of,
    figure,
    mean_tokens,
)
from helixweb.monitoring.models import LivePrediction, MetricSample, TracedRequest
from helixweb.monitoring.node_work import Steps, StepTimes, parts_s
from helixweb.monitoring.refining import refine_profiles
from helixweb.planning.services.studies import forecast_from_json
from planner.domain.instance import InstanceTimes, PlannedInstance
from planner.domain.layer_times import LayerTimes
from planner.domain.placement import LayerRange
from planner.generate import generated_cluster
from planner.serialization import plan_from_dict, problem_from_dict
from planner.timing import layer_times_of
from tests.helixweb.looking import contains, fresh, shows
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.process_doubles import FakeCluster
from tests.helixweb.recorded import recorded

pytestmark = pytest.mark.usefixtures("time_stands_still")

EVERY_S, WINDOWS = 10, 6


class Served:
    """A deployment whose nodes take `longer` times what their profiles say for their decodes."""

    def __init__(self, joined: FakeCluster, user: Any) -> None:
        joined.deploy()
        Deployment.unscoped.update(status=Status.READY)
        self.row = Deployment.unscoped.select_related("plan", "cluster").get()
        self.problem = problem_from_dict(joined.plan.problem)
        self.plan = plan_from_dict(joined.plan.document)
        self.now = timezone.now()

    def node_at(self, name: str, second: int, *, longer: float) -> dict[str, Any]:
        """Counters of four decodes a step, four hundred steps a second."""
        layers, steps = len(self.plan.placement.layers[name]), 400 * second
        step_s = layers * layer_times_of(self.problem, name).decode_s(4)
        return {
            "uptime_s": float(second),
            "busy_s_total": longer * steps * step_s,
            "delayed_s_total": 0.0,
            "stage_tokens_total": 4 * steps,
            "stage_prompt_tokens_total": 0,
            "steps_total": steps,
        }

    def samples(self, *, longer: float = 1.0, slow: str = "", **values: Any) -> None:
        for window in range(WINDOWS + 1):
            second = EVERY_S * (window + 1)
            at = self.now - timedelta(seconds=EVERY_S * (WINDOWS - window))
            nodes = {
                name: self.node_at(name, second, longer=longer if name == slow else 1.0)
                for name in self.plan.placement.layers
            }
            numbers = {"ttft_p50_s": 0.2, "tpot_p50_s": 0.02, "running": 4} | values
            bare_sample(
                self.row.cluster,
                at,
                generation=self.row.generation,
                nodes=nodes,
                output=numbers.pop("output", 100.0),
                **numbers,
            ).save()

    def requests(self, *, prompt_tokens: int = 64, output_tokens: int = 32) -> None:
        for number in range(5):
            traced(self.row, number, self.now, prompt_tokens, output_tokens)


def traced(row: Deployment, number: int, at: datetime, prompt: int, output: int) -> None:
    TracedRequest.objects.create(
        cluster=row.cluster, request=f"{number:016x}", arrived_at=at, generation=row.generation,
        model_name="tiny-llama", outcome="length", prompt_tokens=prompt, output_tokens=output,
        queue_s=0.0, ttft_s=0.2, tpot_s=0.02, e2e_s=1.0, attempts=1, path="", detail={},
    )  # fmt: skip


@pytest.fixture
def served(user: Any, measured_problem: dict[str, Any]) -> Served:
    return recorded(lambda: serving(measured_problem, user))


def serving(problem: dict[str, Any], user: Any) -> Served:
    cluster = import_problem(problem_from_dict(problem))
    return Served(FakeCluster(cluster, user), user)


def test_a_slow_node_is_named_with_a_remedy(
    served: Served, browser: Client, api: APIClient
) -> None:
    slow = min(served.plan.placement.layers)
    served.samples(slow=slow, longer=1.3)
    served.requests()
    found = api.get(f"/api/v1/deployments/{served.row.pk}/predictions/").json()
    (broken,) = found["broken"]
    assert broken["node"] == slow
    assert broken["text"] == f"Steps of {slow} take 30% longer than its profile says."
    assert "measure the node again" in broken["advice"]
    node = next(line for line in found["nodes"] if line["name"] == slow)
    assert node["longer"] == pytest.approx(0.3, abs=0.01)
    assert not node["holds"]
    assert all(line["holds"] for line in found["nodes"] if line["name"] != slow)
    page = browser.get(f"/deployments/{served.row.pk}/predictions/").content.decode()
    contains(page, broken["text"], f"Measure {slow}")


def test_requests_unlike_those_the_plan_is_for_are_told(served: Served) -> None:
    served.samples()
    served.requests(prompt_tokens=200)
    (broken,) = agreement_of(served.row, now=served.now).broken
    assert broken.text == "Prompts have 200 tokens on average; the plan is for 64."


def test_what_nobody_measured_is_told(served: Served) -> None:
    Profile.unscoped.filter(name="small").update(origin=Origin.ESTIMATED)
    served.samples()
    served.requests()
    found = agreement_of(served.row, now=served.now)
    names = {node.name for node in found.nodes if node.estimated}
    assert names == set(served.plan.placement.layers) - {"tower"}
    (broken,) = found.broken
    assert "the plan uses estimates for them" in broken.text


def test_without_requests_nothing_is_claimed(served: Served, browser: Client) -> None:
    assert agreement_of(served.row, now=served.now).broken == ()
    page = browser.get(f"/deployments/{served.row.pk}/predictions/").content.decode()
    assert "No request ran in the last minute" in page


def test_the_present_load_is_simulated_when_it_changes(served: Served, browser: Client) -> None:
    predicting.predict_live(served.now)
    assert not LivePrediction.unscoped.exists()
    served.samples(running=4)
    served.requests()
    predicting.predict_live(served.now)
    row = LivePrediction.unscoped.get()
    forecast = forecast_from_json(row.forecast)
    assert row.running == pytest.approx(4)
    assert forecast.requests_running == pytest.approx(4, rel=0.05)
    predicting.predict_live(served.now + timedelta(seconds=30))
    assert LivePrediction.unscoped.get().at == row.at
    MetricSample.unscoped.update(running=8)
    predicting.predict_live(served.now + timedelta(seconds=30))
    assert forecast_from_json(LivePrediction.unscoped.get().forecast).requests_running > 6
    figures = agreement_of(served.row, now=served.now).figures
    assert [each.name for each in figures] == list(Quantity)
    assert all(each.predicted is not None for each in figures)
    shows(browser.get(f"/deployments/{served.row.pk}/predictions/"), "Predicted by simulation of 8")


def test_output_is_compared_at_the_same_load_only(served: Served) -> None:
    """A rate that covers idle seconds is none of the simulated load, which never pauses."""
    served.samples(running=4)
    served.requests()
    predicting.predict_live(served.now)
    found = agreement_of(served.row, now=served.now)
    assert (found.running, found.predicted_running) == (4, 4)
    assert found.figures[0].measured == 100.0
    idle = MetricSample.unscoped.filter(second__gte=served.now.timestamp() - 10)
    idle.update(running=0, output_tokens_per_s=1.0)
    found = agreement_of(served.row, now=served.now)
    assert found.running == 4
    assert found.figures[0].measured == 100.0
    MetricSample.unscoped.update(running=9)
    assert agreement_of(served.row, now=served.now).predicted_running is None
    MetricSample.unscoped.update(running=0)
    found = agreement_of(served.row, now=served.now)
    assert found.running is None
    assert [(one.predicted, one.measured) for one in found.figures] == [(None, None)] * 3


def test_whole_model_instances_are_not_simulated_as_pipelines(
    served: Served, monkeypatch: pytest.MonkeyPatch, browser: Client
) -> None:
    instance = PlannedInstance(
        name="one",
        node=min(served.plan.placement.layers),
        gpus=(0,),
        tensor_parallel=1,
        backend="helix",
        output_tokens_per_s=10.0,
        kv_room_tokens=1000,
        times=InstanceTimes(prefill=(0, 0, 0, 1), decode=(0, 0, 0, 1)),
    )
    planned = replace(served.plan, instances=(instance,))
    for module in (predicting, views):
        monkeypatch.setattr(module, "stored_plan", lambda _row: planned)
    served.samples()
    served.requests()
    predicting.predict_live(served.now)
    assert not LivePrediction.unscoped.exists()
    shows(browser.get(f"/deployments/{served.row.pk}/predictions/"), "instances are not simulated")


def test_traffic_refines_a_profile_beside_what_plans_use(served: Served) -> None:
    slow = next(
        name for name in served.plan.placement.layers
        if served.problem.profile_of(name).name == "big"
    )  # fmt: skip
    served.samples(slow=slow, longer=1.5)
    refine_profiles(served.now)
    profile = Profile.unscoped.get(name="big")
    version = profile.versions.get(origin=Origin.REFINED)
    # Of six observations: drawn to 1 a little.
    assert version.evidence["decode"]["factor"] == pytest.approx(1.4, abs=0.1)
    assert version.evidence["nodes"] == [slow]
    assert profile.origin == Origin.IMPORTED
    refine_profiles(served.now)
    assert profile.versions.filter(origin=Origin.REFINED).count() == 1
    served.row.cluster.metric_samples.all().delete()
    served.samples(slow=slow, longer=1.1)
    refine_profiles(served.now)
    again = profile.versions.get(origin=Origin.REFINED)
    assert again.pk == version.pk
    assert again.evidence["decode"]["factor"] == pytest.approx(1.1, abs=0.05)
    profile_versions.use_version(again)
    assert fresh(profile).origin == Origin.REFINED
    assert profile.tokens_per_s[0] < 400


def test_little_work_refines_nothing(served: Served) -> None:
    served.samples(longer=1.5)
    MetricSample.unscoped.filter(second__lt=served.now.timestamp() - 15).delete()
    refine_profiles(served.now)
    assert not Profile.unscoped.filter(versions__isnull=False).exists()


def agreement(**changes: Any) -> Agreement:
    values: dict[str, Any] = {
        "running": 4.0, "figures": (), "nodes": (), "links": (), "lengths": (),
    }  # fmt: skip
    return Agreement(**values | changes)


def test_a_link_that_does_less_is_told_once_it_was_seen_full() -> None:
    link = Compared(
        name="a → b", predicted=12.5e6, measured=5e6, tolerance=LINK_OFF, worse=-1, is_sure=True
    )
    (broken,) = agreement(links=[link]).broken
    assert broken.text == "The link a → b does 40 Mbit/s; the plan counts on 100 Mbit/s."
    floor = replace(link, is_sure=False)
    assert agreement(links=[floor]).broken == ()
    assert (link.off_text, floor.off_text) == ("-60%", "")


def test_what_no_assumption_explains_is_told_as_that_and_what_spreads_widely_not() -> None:
    off = figure(Quantity.TTFT, 0.1, 0.3)
    (broken,) = agreement(figures=[off]).broken
    assert broken.text == "What was measured of TTFT, median is not what was predicted."
    better = (figure(Quantity.OUTPUT, 10.0, 28.3), figure(Quantity.TTFT, 1.0, 0.3))
    assert all(each.holds for each in better)
    assert not figure(Quantity.OUTPUT, 10.0, 5.0).holds
    lengths = [mean_tokens("decode", 10, 20)]
    (broken,) = agreement(figures=[off], lengths=lengths).broken
    assert broken.text.startswith("Answers have 20 tokens")
    steps = {
        "name": "n", "profile": "p", "predicted": 1.0, "measured": 1.3, "estimated": False,
    }  # fmt: skip
    assert NodeSteps(**steps, error=0.2).holds
    assert not NodeSteps(**steps, error=0.02).holds
    quicker = NodeSteps(**steps | {"measured": 0.7}, error=0.02)
    (broken,) = agreement(nodes=[quicker]).broken
    assert broken.text == "Steps of n take 30% less than its profile says."
    assert "other work" not in broken.advice


TIMES = LayerTimes(
    prompt=((1.0, 0.001), (101.0, 0.003)), decode=((1.0, 0.010), (11.0, 0.020), (21.0, 0.060))
)


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        (Steps(steps=10, prompt_tokens=0, decode_tokens=10), 10 * 0.010),
        (Steps(steps=10, prompt_tokens=0, decode_tokens=110), 10 * 0.020),
        (Steps(steps=10, prompt_tokens=0, decode_tokens=160), 10 * 0.040),
        (Steps(steps=10, prompt_tokens=0, decode_tokens=5), 5 * 0.010),
        (Steps(steps=4, prompt_tokens=204, decode_tokens=0), 4 * 0.002),
        (Steps(steps=10, prompt_tokens=51, decode_tokens=10), 10 * 0.010 + 0.002),
    ],
    ids=["one each", "eleven each", "sixteen each", "half without", "prompts", "both"],
)
def test_time_is_that_of_the_batches(steps: Steps, seconds: float) -> None:
    found = sum(parts_s(steps, TIMES, layers=3, has_head=True, mean_prompt_tokens=51.0))
    assert found == pytest.approx(3 * seconds)


def test_what_each_step_takes_is_counted_once_and_what_is_between_steps_is_not() -> None:
    times = replace(TIMES, prompt_step_s=0.5, decode_step_s=0.2, head_s=0.1, handling_s=7.0)
    steps = Steps(steps=10, prompt_tokens=51, decode_tokens=10)
    layers_s = 3 * (10 * 0.010 + 0.002)
    for has_head, head_s in ((True, 0.1), (False, 0.0)):
        found = sum(parts_s(steps, times, layers=3, has_head=has_head, mean_prompt_tokens=51.0))
        assert found == pytest.approx(layers_s + 10 * (0.2 + head_s) + 0.3)
    prompts = replace(steps, decode_tokens=0)
    found = sum(parts_s(prompts, times, layers=3, has_head=True, mean_prompt_tokens=51.0))
    assert found == pytest.approx(3 * 0.002 + 0.6)


def test_a_node_goes_by_its_own_profile() -> None:
    problem = generated_cluster(num_nodes=8, num_regions=1, seed=1)
    steps = Steps(steps=100, prompt_tokens=0, decode_tokens=3200)
    times = StepTimes(problem)
    for node in problem.cluster.nodes:
        expected = 2 * 100 * layer_times_of(problem, node.name).decode_s(32.0)
        held = LayerRange(first=3, end=5)
        assert times.expected_s(node.name, steps, layers=held) == pytest.approx((expected, 0.0))
    none = Steps(steps=0, prompt_tokens=0, decode_tokens=0)
    held = LayerRange(first=0, end=2)
    assert times.expected_s(problem.cluster.nodes[0].name, none, layers=held) is None


def test_the_node_with_the_models_last_layer_has_its_head() -> None:
    problem = generated_cluster(num_nodes=8, num_regions=1, seed=1)
    name = problem.cluster.nodes[0].name
    profile = problem.profile_of(name)
    with_head = replace(profile, layer_times=replace(TIMES, head_s=0.5))
    profiles = {**problem.compute_profiles, profile.name: with_head}
    times = StepTimes(replace(problem, compute_profiles=profiles))
    steps = Steps(steps=10, prompt_tokens=0, decode_tokens=10)
    last = problem.model.num_layers
    middle_s, end_s = (
        times.expected_s(name, steps, layers=LayerRange(first=end - 2, end=end))
        for end in (last - 1, last)
    )
    assert end_s == pytest.approx((middle_s[0] + 10 * 0.5, 0.0))

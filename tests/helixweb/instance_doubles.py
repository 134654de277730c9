"""Clusters of doubles that serve whole-model instances."""

from typing import Any

from helixweb.inventory.models import Cluster, LanguageModel, Node, Profile
from helixweb.inventory.services import problems
from helixweb.planning.models import Plan
from planner.domain.instance import PlanMethod
from planner.serialization import problem_to_dict
from runtime.protocol.instance_orders import ObservedInstance
from runtime.protocol.phases import Phase
from tests.helixweb.process_doubles import FakeCluster, planned


class Instances(FakeCluster):
    """A cluster in which `whole` nodes hold all layers, and a plan by that method."""

    def __init__(self, cluster: Cluster, user: Any, *, whole: int, method: PlanMethod) -> None:
        super().__init__(cluster, user)
        make_whole(cluster, self.model, list(self.agents)[:whole])
        self.plan = plan_by(cluster, self.model, method)

    def ready(self, *, generation: int = 1) -> None:
        for name, agent in self.used_agents.items():
            agent.beat(Phase.READY, generation=generation, instances=[told(name)])


def make_whole(cluster: Cluster, model: LanguageModel, names: list[str]) -> None:
    layers = model.num_layers
    Profile.objects.create(
        cluster=cluster,
        model=model,
        name="whole",
        gpu="big",
        vram_bytes=1e9,
        max_layers=layers,
        tokens_per_s=[1000.0 / held for held in range(1, layers + 1)],
        kv_capacity_token_layers=[90_000.0 - 500 * held for held in range(1, layers + 1)],
        layer_times={
            "prompt": [[1000.0, 0.1]],
            "decode": [[1.0, 0.001], [100.0, 0.01]],
        },
        # an engine that is much faster than a stage of all layers
        instance_times={"1": {"prefill": [1e-6, 0, 0, 1e-3], "decode": [0, 1e-5, 0, 1e-3]}},
    )
    Node.unscoped.filter(cluster=cluster, name__in=names).update(profile_name="whole")


def plan_by(cluster: Cluster, model: LanguageModel, method: PlanMethod) -> Plan:
    document = problem_to_dict(problems.build_problem(cluster, model))
    return planned(cluster, model, document, method=method, time_limit_s=1.0)


def told(name: str, condition: str = "ready", **more: Any) -> dict[str, Any]:
    told = ObservedInstance(name=name, condition=condition, port=20_000 + len(name), **more)
    return told.model_dump(mode="json")


def refused(answer: Any, *words: str) -> None:
    assert answer.status_code in (400, 409), answer.content
    for word in words:
        assert word in answer.content.decode()

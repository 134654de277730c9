"""Four small machines serve a model of SmolLM2-135M's shape, each within its memory budget.

Together they have 600 MB for a checkpoint of 269 MB; no two of them could hold it alone.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.domain.cluster import SOURCE, Cluster, Link, Node
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange
from planner.domain.plan import Plan
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.memory import kv_minimum
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from runtime.engine.backend import Backend
from runtime.engine.helix_engine import HelixEngine
from runtime.engine.limits import EngineLimits
from runtime.engine.opening import open_stage
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.profiler.compute import compute_profile, least_bytes
from runtime.profiler.rehearsal import Beside
from runtime.profiler.step_times import StepCost, StepTimes
from runtime.protocol.control import StageAssignment
from runtime.protocol.data import Hop, Route, Sampling
from runtime.protocol.stage_pipe import StageLaunch

pytestmark = pytest.mark.processes

MB = 1_000_000
BUDGETS = {"node-1": 220 * MB, "node-2": 160 * MB, "node-3": 120 * MB, "node-4": 100 * MB}
PROMPT = tuple(range(7, 19))
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)
LIMITS = EngineLimits(page_tokens=16, max_batch_tokens=512, max_context_tokens=2048)
WORKLOAD = Workload(mean_prompt_tokens=64, mean_output_tokens=32)
MINIMUM = kv_minimum(WORKLOAD, longest_tokens=LIMITS.max_context_tokens)
COST = StepCost(fixed_s=0.001, per_layer_s=0.002)
SMOLLM = TinySizes(
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    vocab_size=49152,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    dtype="bfloat16",
)

# For each stage, a fork (torch takes seconds to import): opens it, writes all of its KV cache and
# runs its largest steps; prints what it holds then. Tensors of the steps come and go, so their peak
# is taken from the record of the allocator.
STAGES = """
import ctypes, gc, json, os, sys
from pathlib import Path
import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from runtime.engine.helix_engine import HelixEngine
from runtime.engine.opening import open_stage
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.protocol.control import StageAssignment
from runtime.protocol.data import Hop, Route, Sampling
from runtime.protocol.stage_pipe import StageLaunch

checkpoint, layers, context, *stages = sys.argv[1], *map(json.loads, sys.argv[2:])

def anonymous():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    counted = [line.split() for line in lines if line.startswith(("Anonymous:", "Swap:"))]
    return sum(int(words[1]) for words in counted) * 1024

def opened(first, end, budget):
    assignment = StageAssignment(
        deployment_id=1, generation=1, model_name="m", checkpoint=checkpoint, first=first, end=end,
        num_layers=layers, max_context_tokens=context, peers=(),
    )
    launch = StageLaunch(
        assignment=assignment, name="n", bind="tcp://127.0.0.1:1", secret_key_file="x",
        public_key="k" * 40, memory_budget_bytes=budget,
    )
    return open_stage(launch, HelixEngine, progress=lambda done, total: None, on_lost=print)

def step(stage, first, end, requests, n_tokens):
    runner = stage.backend._runner
    rows = n_tokens * runner.decoder.config.hidden_size
    payload = (np.arange(n_tokens, dtype="<i4") if first == 0 else np.zeros(rows, "<i2")).tobytes()
    route = Route(
        hops=(Hop(node="n", first=first, end=end),), prompt_tokens=1,
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1),
    )
    works = []
    for request in range(requests):
        key = RequestKey(request=request, epoch=0)
        sequence = Sequence(key=key, generation=1, route=route, hop=0, arrival=request)
        chunk = Chunk(position=context // 2 // requests, n_tokens=n_tokens, arrival=request,
                      payload=memoryview(payload), is_sampled=end == layers)
        stage.backend.kv_manager.reserve(sequence.table, tokens=chunk.end)
        works.append(Work(sequence=sequence, chunk=chunk))
    stage.backend.run(works)
    for work in works:
        stage.backend.kv_manager.release(work.sequence.table)

def peak_of(run):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    events = recorded.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    held = most = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        most = max(most, held)
    return most

def measured(first, end, budget):
    warm = opened(2, 3, 100_000_000)
    step(warm, 2, 3, 1, 16)
    del warm
    before = anonymous()
    stage = opened(first, end, budget)
    pools = stage.backend._runner.cache
    pools.key_PSKH.fill_(1), pools.value_PSKH.fill_(1)
    held = anonymous() - before
    batch = stage.limits.max_batch_tokens
    prompts = peak_of(lambda: step(stage, first, end, 1, batch))
    decodes = peak_of(lambda: step(stage, first, end, batch, 1))
    return {
        "held": held, "step": max(prompts, decodes), "batch": batch,
        "told": stage.backend.weights_bytes + stage.backend.kv_bytes,
        "kv_token_layers": stage.backend.kv_manager.total * stage.limits.page_tokens,
    }

for stage in stages:
    if os.fork() == 0:
        print(json.dumps(measured(*stage)), flush=True)
        os._exit(0)
    if os.wait()[1] != 0:
        sys.exit(1)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("smollm")
    make_tiny_checkpoint(directory, sizes=SMOLLM, seed=0)
    return directory


def profile_of(checkpoint: Path, name: str, budget: int) -> ComputeProfile:
    return compute_profile(
        name,
        config=read_config(checkpoint),
        limits=LIMITS,
        times=StepTimes(decode=dict.fromkeys((1, 4), COST), prefill={64: COST}),
        beside=Beside(head_s=0.001, handling_s=0.0, hop_s=0.0),
        workload=WORKLOAD,
        device_name="CPU",
        memory_budget_bytes=budget,
        relative_speed=1.0,
        kv_minimum=MINIMUM,
    )


@pytest.fixture(scope="module")
def problem(checkpoint: Path) -> Problem:
    config = read_config(checkpoint)
    link = Link(source="here", target="here", bandwidth_bytes_per_s=1e9, latency_s=1e-4)
    return Problem(
        name="four",
        model=ModelSpec(
            name="smollm",
            num_layers=config.num_layers,
            activation_bytes_per_token=2 * config.hidden_size,
            token_bytes=4,
            bytes_per_layer=config.bytes_per_layer,
        ),
        workload=WORKLOAD,
        compute_profiles={
            name: profile_of(checkpoint, name, budget) for name, budget in BUDGETS.items()
        },
        cluster=Cluster(
            name="four",
            coordinator_region="here",
            nodes=tuple(Node(name=name, region="here", compute_profile=name) for name in BUDGETS),
            region_links=(link,),
        ),
    )


@pytest.fixture(scope="module")
def plan(problem: Problem) -> Plan:
    """Of all four nodes: none may be idle, so every budget is put to the test."""
    return compute_plan(
        problem,
        options=PlanOptions(time_limit_s=5.0, objective="flow"),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )


@pytest.fixture(scope="module")
def placed(problem: Problem, plan: Plan) -> dict[str, LayerRange]:
    """What each node holds; as much as it can if the plan leaves it idle."""
    most = {name: problem.profile_of(name).max_layers for name in BUDGETS}
    idle = {name: LayerRange(first=1, end=1 + layers) for name, layers in most.items()}
    return idle | dict(plan.placement.layers)


@pytest.fixture(scope="module")
def stages(checkpoint: Path, placed: dict[str, LayerRange]) -> dict[str, dict[str, int]]:
    """What the stages take."""
    numbers = [SMOLLM.num_layers, LIMITS.max_context_tokens]
    ranges = [(placed[name].first, placed[name].end, BUDGETS[name]) for name in BUDGETS]
    done = subprocess.run(
        [sys.executable, "-c", STAGES, str(checkpoint), *map(json.dumps, [*numbers, *ranges])],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(BUDGETS, told, strict=True))


def test_four_small_nodes_get_a_plan_that_no_fewer_could_serve(plan: Plan) -> None:
    ranges = plan.placement.layers.values()
    assert {layer for held in ranges for layer in range(held.first, held.end)} == set(range(30))
    assert plan.flow.value_tokens_per_s > 0


@pytest.mark.parametrize("name", BUDGETS)
def test_a_stage_takes_what_was_forecast_and_never_more_than_its_budget(
    problem: Problem,
    placed: dict[str, LayerRange],
    stages: dict[str, dict[str, int]],
    name: str,
) -> None:
    held, found = placed[name], stages[name]
    assert found["held"] + found["step"] <= BUDGETS[name]
    assert found["held"] + found["step"] >= 0.95 * BUDGETS[name]
    forecast = problem.profile_of(name).kv_room_token_layers(
        len(held), has_first=held.first == 0, has_last=held.end == 30
    )
    assert found["kv_token_layers"] == pytest.approx(forecast, rel=0.05)
    assert found["kv_token_layers"] >= forecast


def pipeline_of(plan: Plan) -> Route:
    """The way through the plan that carries most."""
    flow_of = {(edge.source, edge.target): edge.flow_tokens_per_s for edge in plan.flow.edges}
    hops: list[Hop] = []
    at, done = SOURCE, 0
    while done < plan.num_layers:
        at = max((pair for pair in flow_of if pair[0] == at), key=flow_of.__getitem__)[1]
        end = plan.placement.layers[at].end
        hops.append(Hop(node=at, first=done, end=end))
        done = end
    return Route(hops=tuple(hops), sampling=GREEDY, prompt_tokens=len(PROMPT))


def opened(checkpoint: Path, held: LayerRange, budget: int) -> Backend:
    assignment = StageAssignment(
        deployment_id=1,
        generation=1,
        model_name="smollm",
        checkpoint=str(checkpoint),
        first=held.first,
        end=held.end,
        num_layers=SMOLLM.num_layers,
        max_context_tokens=LIMITS.max_context_tokens,
        peers=(),
    )
    launch = StageLaunch(
        assignment=assignment,
        name="stage",
        bind="tcp://127.0.0.1:1",
        secret_key_file="unused",
        public_key="k" * 40,
        memory_budget_bytes=budget,
    )
    return open_stage(
        launch, HelixEngine, progress=lambda _done, _all: None, on_lost=pytest.fail
    ).backend


def answered(route: Route, stages: dict[str, Backend]) -> int:
    """The token that follows the prompt, its rows passed from stage to stage."""
    payload = memoryview(np.array(PROMPT, dtype="<i4").tobytes())
    for hop, place in enumerate(route.hops):
        sequence = Sequence(
            key=RequestKey(request=1, epoch=0), generation=1, route=route, hop=hop, arrival=0
        )
        chunk = Chunk(position=0, n_tokens=len(PROMPT), payload=payload, is_sampled=True, arrival=0)
        backend = stages[place.node]
        backend.kv_manager.reserve(sequence.table, tokens=chunk.end)
        result = backend.run([Work(sequence=sequence, chunk=chunk)])
        payload = memoryview(bytes(result.rows.gather([(0, len(PROMPT))])))
    return result.drawn[0].token_id


def test_the_four_nodes_answer_what_the_whole_model_would(checkpoint: Path, plan: Plan) -> None:
    route = pipeline_of(plan)
    stages = {
        hop.node: opened(checkpoint, plan.placement.layers[hop.node], BUDGETS[hop.node])
        for hop in route.hops
    }
    whole = opened(checkpoint, LayerRange(first=0, end=SMOLLM.num_layers), 600 * MB)
    alone = replace(route, hops=(Hop(node="whole", first=0, end=SMOLLM.num_layers),))
    assert len(route.hops) > 1
    assert answered(route, stages) == answered(alone, {"whole": whole})


def test_the_bytes_that_a_node_is_said_to_need_suffice_and_one_less_does_not(
    checkpoint: Path,
) -> None:
    needed = least_bytes(read_config(checkpoint), LIMITS, kv_minimum=MINIMUM)
    assert needed < 15 * MB
    assert profile_of(checkpoint, "x", needed).max_layers == 1
    assert profile_of(checkpoint, "x", needed - 1).max_layers == 0
    longer = replace(MINIMUM, tokens=2 * MINIMUM.tokens)
    assert least_bytes(read_config(checkpoint), LIMITS, kv_minimum=longer) > needed

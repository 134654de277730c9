"""Messages between helixweb and the processes that dial in to it (JSON over HTTP).

Level-triggered: the web sends the whole desired state, the agent the whole observed state, each
with a generation; nothing depends on a message arriving.
"""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from planner.domain.layer_times import LayerTimes
from planner.domain.placement import Placement
from planner.domain.problem import Workload
from planner.routers.load_aware import DEFAULT_THETA, MAX_THETA
from runtime.protocol.checkpoint_looks import MOST_LOOKS, LookAnswer, LookOrder
from runtime.protocol.endpoints import CurveKey, Endpoint
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.engines import Engine, EngineOffer
from runtime.protocol.instance_orders import (
    AssignedInstance,
    InstanceTraffic,
    ObservedInstance,
    ServedInstance,
)
from runtime.protocol.message import Count, Message, SmallCount
from runtime.protocol.phases import Phase
from runtime.protocol.profiling import ProfileOrder, ProfilingProgress
from runtime.protocol.reach import Endpoints, LinksToMeasure, Reach
from runtime.protocol.request_trace import RequestTrace
from runtime.protocol.weight_fetch import NodeWeights


class Role(StrEnum):
    """What a join token admits."""

    NODE = "node"
    COORDINATOR = "coordinator"


class Gpu(Message):
    """One GPU of a machine."""

    name: str
    memory_bytes: Count


ENGINE_TEXT_LENGTH = 400


class Hardware(Message):
    """What the agent found on its machine.

    `memory_budget_bytes` is what a stage may use for weights and KV cache together;
    `relative_speed` below 1 marks a CPU agent that was deliberately slowed (demo, tests);
    `emulated` one that runs no model and takes memory, GPU and times from a profile. `engines` is
    what computes stages there (none: not known); `engine` the one that the agent was started with.
    """

    hostname: str
    cpu_count: int = Field(ge=1)
    memory_bytes: Count
    memory_budget_bytes: int = Field(gt=0)
    relative_speed: float = Field(default=1.0, gt=0, le=1.0)
    gpus: tuple[Gpu, ...] = ()
    emulated: bool = False
    engines: tuple[EngineOffer, ...] = ()
    engine: Engine = Engine.AUTO


class PeerAddress(Message):
    """Where a stage or the coordinator listens for data frames, and its CURVE public key (z85)."""

    name: str = Field(min_length=1)
    endpoint: Endpoint
    public_key: CurveKey


class AgentIdentity(Message):
    """PUT /api/v1/agent/identity: what a restarted process reports again, with its credential.

    The coordinator sends it too; `http_url` is where chat clients reach it.
    """

    hardware: Hardware
    data_endpoint: Endpoint
    data_public_key: CurveKey
    http_url: str = Field(default="", pattern=r"^(https?://.+)?$", max_length=300)
    version: str = ""


class RegisterRequest(AgentIdentity):
    """POST /api/v1/agent/register. `node_uuid` is kept on the machine, so a rejoin is no ghost.

    `machine_uuid`: nodes that have it in common are one machine, and use a join token once (null:
    the node is its machine). `may_rename`: if the name is taken, the site appends a number.
    """

    join_token: str = Field(min_length=1, repr=False)
    role: Role
    node_uuid: str = Field(min_length=32, max_length=36)
    machine_uuid: str | None = Field(default=None, min_length=32, max_length=36)
    name: str = Field(min_length=1, max_length=64)
    may_rename: bool = False
    region: str = Field(default="local", min_length=1, max_length=64)


class RegisterReply(Message):
    """`credential` is shown once; it authenticates this node alone (Authorization: Bearer)."""

    name: str
    cluster: str
    credential: str = Field(repr=False)
    heartbeat_interval_s: float = Field(gt=0)


class StageAssignment(Message):
    """What one node's stage shall run. Layers are [first, end).

    `tensor_parallel`: ranks that share each layer, processes of this node, one GPU each.
    `layer_times`: what the plan was made with; null where nobody knows any. `reserve_bytes` of the
    memory budget (of each rank) stay free, as the profile that the plan was made with counted.
    `wire_dtype`: of the rows between all stages of the deployment; empty: the checkpoint's.
    `engine`: what the deployment asks for; the node's own setting overrules it.
    """

    deployment_id: int
    generation: int = Field(ge=1)
    model_name: str
    checkpoint: str
    first: Count
    end: int = Field(ge=1)
    num_layers: int = Field(ge=1)
    page_tokens: int = Field(default=16, ge=1)
    max_batch_tokens: int = Field(default=512, ge=1)
    max_context_tokens: int = Field(ge=1)
    options: EngineOptions = EngineOptions()
    tensor_parallel: int = Field(default=1, ge=1, le=64)
    layer_times: LayerTimes | None = None
    reserve_bytes: Count = 0
    wire_dtype: Literal["", "bfloat16", "float16", "float32"] = ""
    engine: Engine = Engine.AUTO
    peers: tuple[PeerAddress, ...]


class DesiredState(Message):
    """GET /api/v1/agent/desired. No assignment and no instances: hold nothing. Never both.

    `continues`: what the node served before goes on beside it until the coordinator retires it;
    else that ends at once. `looks`: checkpoints that the site asks about, whatever the generation.
    """

    generation: SmallCount
    assignment: StageAssignment | None = None
    continues: bool = False
    instances: tuple[AssignedInstance, ...] = ()
    looks: tuple[LookOrder, ...] = Field(default=(), max_length=MOST_LOOKS)


class LinkStats(Message):
    """What the sender knows of a directed link; totals since it first sent, times of the sender.

    `bandwidth_bytes_per_s` is measured by TCP while prompts are on their way, or by acks of their
    chunks where it does not say, `rtt_s` (of the idle link) by acks; null before.
    `bandwidth_age_s` ago the former was last confirmed; it is a floor as long as the link was not
    seen full, and may do more. `queueing_s` is how much longer the last round trip took. The urgent
    lane has decodes and all that is small, the bulk lane prompts in chunks; bytes/s are of the last
    seconds. `filler_bytes_total` went to measure a link that nothing else is sent over. `stalled`:
    what was sent is not answered. Older senders also report `starved_total` and
    `longest_wait_decodes`.
    """

    bandwidth_bytes_per_s: float | None = Field(default=None, ge=0)
    bandwidth_age_s: float | None = Field(default=None, ge=0)
    bandwidth_is_floor: bool = True
    rtt_s: float | None = Field(default=None, ge=0)
    queueing_s: float = Field(default=0.0, ge=0)
    waiting_bytes: Count = 0
    in_flight_bytes: Count = 0
    urgent_bytes_per_s: float = Field(default=0.0, ge=0)
    bulk_bytes_per_s: float = Field(default=0.0, ge=0)
    urgent_bytes_total: Count = 0
    urgent_messages_total: Count = 0
    bulk_bytes_total: Count = 0
    chunks_total: Count = 0
    filler_bytes_total: Count = 0
    sent_again_total: Count = 0
    starved_total: Count = 0
    longest_wait_decodes: Count = 0
    stalled: bool = False


class StageStats(Message):
    """One stage's counters since it became ready; gauges are of this moment.

    `decode_cap` is the most decodes a step may hold now (None: all), `micro_batches` what it
    follows from. `steps_at_once`: of the deployment's stages on the cores they share (None: they
    have a machine each, or enough cores). `delayed_s_total`: of `busy_s_total`, it was ready and
    waited for a core (None: not known). Pages cached are held by nobody, but keep a prompt that may
    come again. `prefix_tokens_total`: prompt tokens that were not computed because their pages were
    there. `engine` is what computes the layers, with its attention and kernels, and why.
    """

    kv_pages_total: Count
    kv_pages_used: Count
    sequences: Count
    steps_total: Count
    prompt_tokens_total: Count
    decode_tokens_total: Count
    busy_s_total: float = Field(ge=0)
    delayed_s_total: float | None = Field(default=None, ge=0)
    uptime_s: float = Field(ge=0)
    weights_bytes: Count
    kv_bytes: Count
    decode_cap: int | None = Field(default=None, ge=1)
    micro_batches: float | None = Field(default=None, ge=1)
    steps_at_once: float | None = Field(default=None, ge=1)
    kv_pages_cached: Count = 0
    preemptions_total: Count = 0
    prefix_tokens_total: Count = 0
    emulated: bool = False
    engine: str = Field(default="", max_length=ENGINE_TEXT_LENGTH)
    links: dict[str, LinkStats] = {}  # by the peer sent to


class ObservedState(Message):
    """What the agent sees of itself.

    `generation` is that of the desired state it acts on (also when that says: hold nothing).
    `loaded_ratio` is the share of the weights read so far, while loading. `also_serving`: earlier
    generations that go on beside it, not retired yet. `weights`: what it fetches and serves.
    """

    generation: SmallCount
    phase: Phase
    message: str = ""
    also_serving: tuple[SmallCount, ...] = ()
    loaded_ratio: float | None = Field(default=None, ge=0, le=1.0)
    first: int | None = None
    end: int | None = None
    stage: StageStats | None = None
    instances: tuple[ObservedInstance, ...] = ()
    weights: NodeWeights | None = None


class Heartbeat(Message):
    """POST /api/v1/agent/heartbeat, every `heartbeat_interval_s`. `leaving`: it is the last one, as
    the agent was told to end. `profiling`: of the order that the last answer gave. `reach`: of
    the endpoints that an answer named; null from agents of before, which are asked for none.
    `looked`: what was found for the desired state's `looks`."""

    observed: ObservedState
    leaving: bool = False
    profiling: ProfilingProgress | None = None
    reach: Reach | None = None
    looked: tuple[LookAnswer, ...] = Field(default=(), max_length=MOST_LOOKS)


class HeartbeatReply(Message):
    """The generation the web wants, so that a lost push is noticed at the next heartbeat.

    `profile`: what a node shall measure beside what it serves; null: nothing, or no longer.
    `to_reach`: data endpoints of other processes to try, `to_measure`: to measure links to; null:
    as before.
    """

    generation: int
    profile: ProfileOrder | None = None
    to_reach: Endpoints | None = None
    to_measure: LinksToMeasure | None = None


class ServingPlan(Message):
    """What the coordinator serves: the deployed plan and where its stages listen.

    `emulated`: some of its nodes run no model but take its times from a profile. `placement` has
    the stages only; `instances` are those whose address is known, of `instances_total`, and
    `theta` is the load-aware router's (Xiong et al., equation 7). Beside them the pipelines are
    forecast to write so many output tokens/s, with KV room for so many tokens.
    """

    deployment_id: int
    generation: int = Field(ge=1)
    model_name: str
    checkpoint: str
    num_layers: int = Field(ge=1)
    partial_inference: bool
    placement: Placement
    routing_weights: dict[str, dict[str, float]]
    workload: Workload
    max_context_tokens: int = Field(ge=1)
    page_tokens: int = Field(default=16, ge=1)
    kv_high_water: float = Field(default=0.9, gt=0, le=1.0)
    max_queued_requests: int = Field(default=64, ge=0)
    emulated: bool = False
    instances: tuple[ServedInstance, ...] = ()
    instances_total: SmallCount = 0
    theta: float = Field(default=DEFAULT_THETA, gt=0, le=MAX_THETA)
    pipelines_tokens_per_s: float | None = Field(default=None, gt=0)
    pipelines_room_tokens: int = Field(default=65_536, ge=1)
    peers: tuple[PeerAddress, ...]


class AdmittedKey(Message):
    """An API key that opens the endpoint, and what it is held to; null: to nothing.

    `hash` is the hex HMAC-SHA256, under one of `CoordinatorDesired.peppers`, of the hex SHA-256 of
    the whole key; `key` is how people know it. `expires_at` is a Unix time. `tokens_today` (UTC)
    is what the site knows of: all coordinators' together, some seconds ago.
    """

    key: str
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    networks: tuple[str, ...] = ()
    expires_at: float | None = None
    requests_per_min: SmallCount | None = None
    tokens_per_min: SmallCount | None = None
    tokens_per_day: Count | None = None
    tokens_today: Count = 0


class CoordinatorDesired(Message):
    """GET /api/v1/coordinator/desired. `api_key_hashes` are hex sha256 of whole keys that are held
    to nothing; `keys` are people's.

    `draining`: nodes that requests shall leave, as far as there is a way around them. `paused`: new
    requests wait, those that run go on.
    """

    generation: SmallCount
    plan: ServingPlan | None = None
    api_key_hashes: tuple[str, ...] = ()
    keys: tuple[AdmittedKey, ...] = ()
    peppers: tuple[str, ...] = Field(default=(), repr=False)
    draining: tuple[str, ...] = ()
    paused: bool = False


# Upper ends of the intervals latencies are counted in.
LATENCY_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
)  # fmt: skip


class NodeTraffic(Message):
    """What the coordinator knows of one node: estimate against room, tokens routed through it."""

    kv_estimate_token_layers: float = Field(ge=0)
    kv_capacity_token_layers: float = Field(ge=0)
    tokens_total: Count
    ready: bool


class DrainProgress(Message):
    """How far a node is that shall be drained: so many `requests` still run through it. `needed`:
    no way leads around it, so that new ones do, too."""

    requests: SmallCount
    needed: bool


class KeySpending(Message):
    """What one API key asked of a coordinator and was given since the process started."""

    requests: Count = 0
    prompt_tokens: Count = 0
    output_tokens: Count = 0


# Of the requests that are not over a report lists so many.
MOST_REQUESTS_REPORTED = 50


class LiveRequestState(StrEnum):
    """How far a request is: it waits for a pipeline, reads its prompt, or writes."""

    WAITING = "waiting"
    PROMPT = "prompt"
    WRITING = "writing"


class ReportedRequest(Message):
    """A request that is not over, `age_s` after it arrived.

    `request` is the id that its trace will have; `nodes` are its pipeline, none while it waits.
    """

    request: str = Field(pattern=r"^[0-9a-f]{16}$")
    state: LiveRequestState
    age_s: float = Field(ge=0)
    model_name: str = Field(max_length=120)
    prompt_tokens: Count
    output_tokens: Count
    nodes: tuple[str, ...] = ()


class CoordinatorReport(Message):
    """POST /api/v1/coordinator/report, about once a second. Totals since the process started.

    Percentiles cover the last `window_s` seconds and are null when nothing finished in it.
    `coming_generation` takes over when no stage is left in `coming_missing`, those that have not
    said that they serve it; null: no other plan is coming. Of `leaving_generation`, which it took
    over from, `leaving_requests` still run; null: all have gone. `draining`: every node that shall
    be, as the desired state says. `lost_nodes` have served and do not now; the text is how that was
    noticed. `refused_generation` cannot be served, as `message` says; what served before may go on.
    `reach` is as in `Heartbeat`.
    """

    generation: SmallCount
    serving: bool
    message: str = ""
    refused_generation: SmallCount | None = None
    coming_generation: SmallCount | None = None
    coming_missing: tuple[str, ...] = ()
    leaving_generation: SmallCount | None = None
    leaving_requests: SmallCount = 0
    draining: dict[str, DrainProgress] = {}
    paused: bool = False
    window_s: float = Field(gt=0)
    requests_running: SmallCount
    requests_waiting: SmallCount
    # those that wait longest, then those that run longest
    requests: tuple[ReportedRequest, ...] = Field(default=(), max_length=MOST_REQUESTS_REPORTED)
    requests_total: Count
    requests_failed_total: Count
    requests_rejected_total: Count
    prompt_tokens_total: Count
    output_tokens_total: Count
    prompt_tokens_per_s: float = Field(ge=0)
    output_tokens_per_s: float = Field(ge=0)
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    itl_p50_s: float | None = None
    itl_p95_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None
    e2e_p50_s: float | None = None
    e2e_p95_s: float | None = None
    queue_p50_s: float | None = None
    nodes: dict[str, NodeTraffic] = {}
    lost_nodes: dict[str, str] = {}
    instances: dict[str, InstanceTraffic] = {}
    # "source->target": tokens routed over the edge since start
    edge_tokens_total: dict[str, Count] = {}
    # ttft, itl, tpot, e2e: how many were in each of the intervals that LATENCY_BOUNDS_S ends, and
    # above them
    latency_counts: dict[str, tuple[Count, ...]] = {}
    # requests that ended lately; sent again until a report that held them was answered
    traces: tuple[RequestTrace, ...] = ()
    links: dict[str, LinkStats] = {}  # by the stage sent to
    keys: dict[str, KeySpending] = {}  # by the public part of the key
    reach: Reach | None = None

"""Rows and requests of the REST API. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class AcknowledgeRequest(TypedDict):
    """Unknown keys are an error that names them, never silently ignored."""

    comment: NotRequired[str]


ActorKindEnum: TypeAlias = "Literal['site', 'person', 'key', 'process', 'command', 'nobody']"


class AddedNodesRequest(TypedDict):
    """So many nodes of a profile in a region."""

    count: int
    profile: str
    region: str


class AdoptionRequest(TypedDict):
    """Which of a replanning's answers to make a plan of, from 0."""

    point: int


class Agreement(TypedDict):
    """Predicted against measured; `running`: requests at once on average over the last minute."""

    running: float | None
    figures: list[Figure]
    nodes: list[NodeSteps]
    links: list[LinkRate]
    lengths: list[MeanTokens]
    broken: list[Broken]


class Alert(TypedDict):
    id: int
    cluster: int
    rule: int
    rule_name: str
    kind: str
    subject: str
    severity: AlertSeverityEnum
    state: AlertStateEnum
    value: float | None
    text: str
    since: str
    fired_at: str | None
    resolved_at: str | None
    flaps: int
    silenced: bool
    acknowledged_at: str | None
    acknowledged_by: str
    comment: str


AlertKindEnum: TypeAlias = "Literal['node_lost', 'coordinator_lost', 'deployment_failed', 'plan_stale', 'ttft_p95', 'itl_p95', 'requests_waiting', 'kv_promised', 'link_slow', 'key_expires', 'certificate_expires']"


AlertSeverityEnum: TypeAlias = "Literal['warning', 'critical']"


AlertStateEnum: TypeAlias = "Literal['pending', 'firing', 'resolved']"


class ApiKey(TypedDict):
    """A key; `secret` is in the answer to who made it, and shown this once.

    It may do no more than its owner. Limits that are null are none.
    """

    id: int
    name: str
    key: str
    owner: str
    scopes: list[ScopesEnum]
    cluster: NotRequired[int | None]
    networks: NotRequired[list[str]]
    requests_per_min: NotRequired[int | None]
    tokens_per_min: NotRequired[int | None]
    tokens_per_day: NotRequired[int | None]
    created_at: str
    expires_at: NotRequired[str | None]
    revoked_at: str | None
    last_used_at: str | None
    used: Counts
    used_today: Counts
    secret: str | None


class ApiKeyRequest(TypedDict):
    """A key; `secret` is in the answer to who made it, and shown this once.

    It may do no more than its owner. Limits that are null are none.
    """

    name: str
    scopes: list[ScopesEnum]
    cluster: NotRequired[int | None]
    networks: NotRequired[list[str]]
    requests_per_min: NotRequired[int | None]
    tokens_per_min: NotRequired[int | None]
    tokens_per_day: NotRequired[int | None]
    expires_at: NotRequired[str | None]


class Assignment(TypedDict):
    """One node's layers [first, end), and how far it is with the present generation."""

    node: int | None
    node_name: str
    node_state: NodeStateEnum
    emulated: bool
    first: int
    end: int
    tensor_parallel: int
    engine: str
    observed_generation: int
    phase: PhaseEnum
    message: str
    loaded_ratio: float | None
    fetch: dict[str, Any] | None
    stats: dict[str, Any] | None
    instances: list[dict[str, Any]]
    observed_instances: list[dict[str, Any]]
    updated_at: str


class Attempt(TypedDict):
    attempt: int
    at: str
    took_s: float
    code: int | None
    error: str


BackendEnum: TypeAlias = "Literal['helix', 'vllm', 'transformers']"


BaselinesEnum: TypeAlias = "Literal['separate_pipelines', 'swarm', 'petals']"


class BatchLimits(TypedDict):
    """What goes into one batch at most; one number for each number of layers held."""

    prompt_max_requests: list[int]
    decode_max_tokens: list[int]


class BatchLimitsRequest(TypedDict):
    """What goes into one batch at most; one number for each number of layers held."""

    prompt_max_requests: list[int]
    decode_max_tokens: list[int]


class Broken(TypedDict):
    """An assumption that does not hold, and what to do."""

    text: str
    advice: str
    node: str


class BulkRequest(TypedDict):
    """What shall be alike on all of `nodes`; what is left out stays as it is."""

    nodes: list[int]
    region: NotRequired[str]
    profile_name: NotRequired[str]
    confirm_profile: NotRequired[bool]
    add_tags: NotRequired[list[str]]
    remove_tags: NotRequired[list[str]]


class Change(TypedDict):
    """`before` and `after` hold what differs; null where there is none."""

    id: int
    cluster: int | None
    cluster_name: str
    kind: str
    row_id: int
    name: str
    action: ChangeActionEnum
    text: str
    actor: str
    actor_kind: ActorKindEnum
    api_key: str
    address: str
    request_id: str
    comment: str
    batch: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    at: str


ChangeActionEnum: TypeAlias = "Literal['added', 'changed', 'removed', 'noted', 'refused']"


class Changed(TypedDict):
    """How many nodes differ from before."""

    changed: int


class ChangedLinkRequest(TypedDict):
    """A directed link between nodes, or between regions."""

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float


class Channel(TypedDict):
    """`secret` signs what is posted; it is in the answer to its making, and then no more."""

    id: int
    cluster: int
    name: str
    way: WayEnum
    url: NotRequired[str]
    addresses: NotRequired[dict[str, Any]]
    enabled: NotRequired[bool]
    send_resolved: NotRequired[bool]
    least_severity: NotRequired[AlertSeverityEnum]
    alive_every_s: NotRequired[float | None]
    failures: int
    disabled_why: str
    created_at: str
    secret: str | None


class ChannelBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Channel]
    created: list[Channel]


class ChannelBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedChannelRequest]]
    create: NotRequired[list[ChannelRequest]]
    if_match: NotRequired[dict[str, str]]


class ChannelRequest(TypedDict):
    """`secret` signs what is posted; it is in the answer to its making, and then no more."""

    cluster: int
    name: str
    way: WayEnum
    url: NotRequired[str]
    addresses: NotRequired[dict[str, Any]]
    enabled: NotRequired[bool]
    send_resolved: NotRequired[bool]
    least_severity: NotRequired[AlertSeverityEnum]
    alive_every_s: NotRequired[float | None]


class Cluster(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    name: str
    coordinator_region: NotRequired[str]
    mean_prompt_tokens: NotRequired[float]
    mean_output_tokens: NotRequired[float]
    replanning: NotRequired[ReplanningEnum]
    source: NotRequired[str]
    created_at: str


class ClusterBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Cluster]
    created: list[Cluster]


class ClusterBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedClusterRequest]]
    create: NotRequired[list[ClusterRequest]]
    if_match: NotRequired[dict[str, str]]


class ClusterRequest(TypedDict):
    """Checks the fields, then calls the service."""

    name: str
    coordinator_region: NotRequired[str]
    mean_prompt_tokens: NotRequired[float]
    mean_output_tokens: NotRequired[float]
    replanning: NotRequired[ReplanningEnum]
    source: NotRequired[str]


class ComparedPlan(TypedDict):
    """`moved_bytes` is what nodes load anew on the way from the first plan."""

    plan: int
    objective: NotRequired[str]
    objective_value: NotRequired[float | None]
    simulated: Simulated | None
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float
    gap: float
    hops: float
    moved_bytes: float | None


class Comparison(TypedDict):
    """Plans in the order they were asked for."""

    plans: list[ComparedPlan]
    nodes: list[NodeLayers]


class Coordinator(TypedDict):
    id: int
    cluster: int
    name: str
    state: NodeStateEnum
    uuid: str
    http_url: str
    data_endpoint: str
    version: str
    joined_at: str | None
    last_seen_at: str | None


class Count(TypedDict):
    kind: ImportedKindEnum
    add: int
    change: int
    remove: int


class Counts(TypedDict):
    """What a key was used for."""

    rest_requests: int
    requests: int
    prompt_tokens: int
    output_tokens: int


class CutPair(TypedDict):
    """`source` does not reach `endpoint`, which is of `target`; `why` as its system says it."""

    source: str
    target: str
    endpoint: str
    why: str
    remedy: str


class Delivery(TypedDict):
    """`told` are the turns of alerts that it tells of."""

    id: int
    channel: int
    occasion: OccasionEnum
    number: str
    told: list[dict[str, Any]]
    status: TaskStatusEnum
    attempt: int
    error: str
    created_at: str
    next_try_at: str
    finished_at: str | None
    attempts: list[Attempt]


class DeployRequestRequest(TypedDict):
    """Which plan, and how its stages shall run; what is left out takes its default."""

    plan: int
    page_tokens: NotRequired[int]
    max_batch_tokens: NotRequired[int]
    kv_high_water: NotRequired[float]
    max_queued_requests: NotRequired[int]
    max_context_tokens: NotRequired[int | None]
    tensor_parallel: NotRequired[int]
    tensor_parallel_by_node: NotRequired[dict[str, int]]
    engine: NotRequired[EngineEnum]
    engine_by_node: NotRequired[dict[str, Literal['auto', 'vllm', 'helix']]]
    backend_by_node: NotRequired[dict[str, str]]
    theta: NotRequired[float]


class Deployment(TypedDict):
    id: int
    cluster: int
    plan: int
    model: int
    model_name: str
    checkpoint: str
    pinned_checkpoint: str
    generation: int
    status: DeploymentStatusEnum
    message: str
    emulated: bool
    page_tokens: int
    max_batch_tokens: int
    kv_high_water: float
    max_queued_requests: int
    max_context_tokens: int
    tensor_parallel: int
    tensor_parallel_by_node: dict[str, int]
    engine: str
    engine_by_node: dict[str, str]
    backend_by_node: dict[str, str]
    theta: float
    created_by: str | None
    created_at: str
    ready_at: str | None
    ended_at: str | None
    pushed_at: str | None
    follows_generation: int | None
    took_over_at: str | None
    paused_at: str | None
    assignments: list[Assignment]


DeploymentStatusEnum: TypeAlias = "Literal['deploying', 'ready', 'degraded', 'failed', 'stopping', 'stopped', 'superseded']"


DirectionEnum: TypeAlias = "Literal['egress', 'ingress']"


class Drain(TypedDict):
    """A node that shall take no requests and hold nothing.

    So many `requests` still run through it (null: no coordinator has told yet); `needed`: no way
    leads around it, so that new ones do, too, until layers are elsewhere.
    """

    id: int
    node: int
    node_name: str
    state: DrainStateEnum
    requests: int | None
    needed: bool
    began_at: str
    let_go_at: str | None
    drained_at: str | None
    created_by: str | None


class DrainRequest(TypedDict):
    """A node that shall take no requests and hold nothing.

    So many `requests` still run through it (null: no coordinator has told yet); `needed`: no way
    leads around it, so that new ones do, too, until layers are elsewhere.
    """

    node: int


DrainStateEnum: TypeAlias = "Literal['draining', 'letting go', 'drained']"


class Ended(TypedDict):
    """How many log-ins were ended."""

    ended: int


EngineEnum: TypeAlias = "Literal['auto', 'vllm', 'helix']"


class EstimateRequest(TypedDict):
    """A GPU that nobody has measured; `name` as the GPU's if left out."""

    cluster: int
    model: int
    gpu: GpuEnum
    name: NotRequired[str]


class Event(TypedDict):
    """Something that happened; `data` says what, as the kind has it."""

    id: str
    type: str
    topic: str
    data: dict[str, Any]


class Events(TypedDict):
    """What happened, the oldest first, and where to go on."""

    events: list[Event]
    after: str


class Explanation(TypedDict):
    """`survival_tokens_per_s` is left when `worst_node` is lost."""

    plan: int
    status: TaskStatusEnum
    error: str
    search_s: float
    limits: list[str]
    survival_tokens_per_s: float | None
    worst_node: str
    values: list[MarginalValue]
    created_at: str
    started_at: str | None
    finished_at: str | None


class ExplanationRequestRequest(TypedDict):
    """Seconds of replanning for each kind of node; 0: the others keep their layers."""

    search_s: NotRequired[float]


class ExtensionRequest(TypedDict):
    """How much longer to search."""

    seconds: float


class Figure(TypedDict):
    """Tokens/s, or seconds, at the load there was."""

    quantity: QuantityEnum
    predicted: float | None
    measured: float | None
    holds: bool | None


class Finding(TypedDict):
    """What limits; `subject` is the node or link at fault, empty if none is."""

    limit: LimitEnum
    subject: str
    headline: str
    evidence: str
    advice: str


FlowOptionsMethodEnum: TypeAlias = "Literal['pipelines']"


FlowOptionsObjectiveEnum: TypeAlias = "Literal['flow']"


class FlowOptionsRequest(TypedDict):
    """How to search where only the flow can be made large."""

    time_limit_s: NotRequired[float]
    objective: NotRequired[FlowOptionsObjectiveEnum]
    ttft_limit_s: NotRequired[float | None]
    tpot_limit_s: NotRequired[float | None]
    demand_tokens_per_s: NotRequired[float | None]
    partial_inference: NotRequired[bool]
    placer: NotRequired[PlacerEnum]
    solver: NotRequired[SolverEnum]
    prune_degree: NotRequired[float | None]
    warm_start: NotRequired[WarmStartEnum]
    relative_gap: NotRequired[float]
    baselines: NotRequired[list[BaselinesEnum]]
    seed: NotRequired[int]
    rules: NotRequired[PlacementRulesRequest]
    method: NotRequired[FlowOptionsMethodEnum]
    backend: NotRequired[BackendEnum]
    tensor_parallel: NotRequired[int | None]


GpuEnum: TypeAlias = "Literal['A10', 'A100-40GB', 'A100-80GB', 'H100-PCIe', 'H100-SXM', 'H200', 'L4', 'L40S', 'RTX-3090', 'RTX-4090', 'T4', 'V100-16GB', 'V100-32GB']"


class Grant(TypedDict):
    """A role of `user` or of `group`, by name, on `cluster`; null: on the whole site."""

    id: int
    user: NotRequired[str | None]
    group: NotRequired[str | None]
    cluster: NotRequired[int | None]
    role: RoleOfPersonEnum
    created_at: str


class GrantRequest(TypedDict):
    """A role of `user` or of `group`, by name, on `cluster`; null: on the whole site."""

    user: NotRequired[str | None]
    group: NotRequired[str | None]
    cluster: NotRequired[int | None]
    role: RoleOfPersonEnum


class Group(TypedDict):
    """`members` are user names."""

    id: int
    name: str
    members: NotRequired[list[str]]
    grants: list[Grant]


class GroupRequest(TypedDict):
    """`members` are user names."""

    name: str
    members: NotRequired[list[str]]


class HoldingRequest(TypedDict):
    """Whether requests are routed by the plan's weights whatever links do."""

    held: bool


class ImportRequest(TypedDict):
    """Either a parsed `problem` or its `text` in JSON or YAML."""

    name: NotRequired[str]
    text: NotRequired[str]
    problem: NotRequired[dict[str, Any]]


ImportedKindEnum: TypeAlias = "Literal['models', 'clusters', 'profiles', 'nodes', 'region_links', 'links', 'shared_bandwidths', 'alert_rules']"


class Incumbent(TypedDict):
    id: int
    attempt: int
    elapsed_s: float
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float | None
    gap: float | None
    objective_value: float | None
    placer: str
    placement: dict[str, list[int]]
    components: list[list[str]]


class JoinToken(TypedDict):
    """`secret` and `command` are in the answer to POST only, this once."""

    id: int
    cluster: int
    role: JoinTokenRoleEnum
    machines: NotRequired[int]
    created_at: str
    expires_at: str
    machines_admitted: int
    names_admitted: list[str]
    used_at: str | None
    used_by_name: str
    secret: str | None
    command: str | None


class JoinTokenRequest(TypedDict):
    """`secret` and `command` are in the answer to POST only, this once."""

    cluster: int
    role: JoinTokenRoleEnum
    machines: NotRequired[int]


JoinTokenRoleEnum: TypeAlias = "Literal['node', 'coordinator']"


class Kept(TypedDict):
    """How many links have another rate than before."""

    kept: int


class LanguageModel(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    name: NotRequired[str]
    num_layers: NotRequired[int]
    activation_bytes_per_token: NotRequired[float]
    token_bytes: NotRequired[float]
    bytes_per_layer: NotRequired[float]
    checkpoint: NotRequired[str]
    max_context_tokens: NotRequired[int]
    num_heads: NotRequired[int | None]
    num_kv_heads: NotRequired[int | None]
    head_dim: NotRequired[int | None]
    embedding_bytes: NotRequired[float | None]
    head_bytes: NotRequired[float | None]
    architecture: NotRequired[str]
    dtype: NotRequired[str]
    why_not_split: NotRequired[str]
    engine: NotRequired[EngineEnum]
    vllm_flags: NotRequired[str]
    created_at: str


class LanguageModelBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[LanguageModel]
    created: list[LanguageModel]


class LanguageModelBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedLanguageModelRequest]]
    create: NotRequired[list[LanguageModelRequest]]
    if_match: NotRequired[dict[str, str]]


class LanguageModelRequest(TypedDict):
    """Checks the fields, then calls the service."""

    name: NotRequired[str]
    num_layers: NotRequired[int]
    activation_bytes_per_token: NotRequired[float]
    token_bytes: NotRequired[float]
    bytes_per_layer: NotRequired[float]
    checkpoint: NotRequired[str]
    max_context_tokens: NotRequired[int]
    num_heads: NotRequired[int | None]
    num_kv_heads: NotRequired[int | None]
    head_dim: NotRequired[int | None]
    embedding_bytes: NotRequired[float | None]
    head_bytes: NotRequired[float | None]
    architecture: NotRequired[str]
    dtype: NotRequired[str]
    why_not_split: NotRequired[str]
    engine: NotRequired[EngineEnum]
    vllm_flags: NotRequired[str]


LevelEnum: TypeAlias = "Literal['debug', 'info', 'warning', 'error']"


LimitEnum: TypeAlias = "Literal['silent node', 'slow node', 'KV cache', 'host CPU', 'compute', 'link', 'admission', 'nothing', 'unknown']"


class Link(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    cluster: int
    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float
    origin: NotRequired[OriginEnum]
    recorded_at: str | None


class LinkAtWork(TypedDict):
    """A directed link as its sender told of it `age_s` ago, beside what the plan counts on.

    `measured_bytes_per_s` is a floor as long as the link was not seen full; null: not measured.
    """

    source: str
    target: str
    planned_bytes_per_s: float | None
    measured_bytes_per_s: float | None
    measured_age_s: float | None
    is_floor: bool
    rtt_s: float | None
    queueing_s: float
    queued_bytes: int
    urgent_bytes_per_s: float
    bulk_bytes_per_s: float
    slow: bool
    stalled: bool
    age_s: float


class LinkBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Link]
    created: list[Link]


class LinkBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedLinkRequest]]
    create: NotRequired[list[LinkRequest]]
    if_match: NotRequired[dict[str, str]]


class LinkRate(TypedDict):
    name: str
    counted_bytes_per_s: float
    measured_bytes_per_s: float
    seen_full: bool
    holds: bool | None


class LinkRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: int
    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float
    origin: NotRequired[OriginEnum]


class LinkWeights(TypedDict):
    """Routing weights for links that do other than planned (`rates`, bytes/s); not followed while
    `held`.
    """

    rates: dict[str, Any]
    routing_weights: dict[str, Any]
    flow_tokens_per_s: float
    held: bool
    counts: bool
    changed_at: str


class LinksAtWork(TypedDict):
    """`weights` is null while every link does as planned since the deployment began."""

    links: list[LinkAtWork]
    weights: LinkWeights | None


class LoginLink(TypedDict):
    """Logs in once, within the hour."""

    login_link: str


class MarginalValue(TypedDict):
    """One more unit of a resource; `replanned_tokens_per_s` is null where nothing was searched."""

    resource: str
    before_tokens_per_s: float
    kept_tokens_per_s: float
    replanned_tokens_per_s: float | None
    gain: float


class Me(TypedDict):
    """Who asks, and what they may do: on the site, and where it is more on single clusters."""

    username: str
    site_role: RoleOfPersonEnum | NullEnum
    roles: list[RoleOnCluster]
    key: str | None
    scopes: list[str] | None


class MeanTokens(TypedDict):
    phase: str
    planned: float
    measured: float | None
    holds: bool | None


class MeasureRequest(TypedDict):
    """For which model all nodes of a cluster are measured; `again`: those with a fresh
    measurement, too.
    """

    model: int
    again: NotRequired[bool]


class MixShare(TypedDict):
    model: int
    weight: float


class ModelMix(TypedDict):
    """`runs` are the finished plan runs, one for each model, once the mix has ended."""

    id: int
    cluster: int
    status: TaskStatusEnum
    attempt: int
    cancel_requested: bool
    error: str
    options: PlanOptions
    models: list[MixShare]
    level_tokens_per_s: float | None
    level_bound_tokens_per_s: float | None
    runs: list[int]
    created_by: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class ModelMixRequestRequest(TypedDict):
    """Which models to plan on which cluster, and how to search."""

    cluster: int
    models: list[WeightRequest]
    options: NotRequired[FlowOptionsRequest]


class Node(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    cluster: int
    name: str
    region: NotRequired[str]
    profile_name: NotRequired[str]
    price_per_hour: NotRequired[float | None]
    state: NodeStateEnum
    uuid: str | None
    hardware: dict[str, Any] | None
    tags: list[str]
    data_endpoint: str
    version: str
    joined_at: str | None
    last_seen_at: str | None


class NodeBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Node]
    created: list[Node]


class NodeBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedNodeRequest]]
    create: NotRequired[list[NodeRequest]]
    if_match: NotRequired[dict[str, str]]


class NodeLayers(TypedDict):
    """A node's layers in each plan, blank where it holds none."""

    node: str
    layers: list[str]
    differs: bool


class NodeLogLine(TypedDict):
    """A line of a node's log, `at` by the node's clock."""

    id: int
    at: str
    source: SourceEnum
    level: LevelEnum
    text: str


class NodeRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: int
    name: str
    region: NotRequired[str]
    profile_name: NotRequired[str]
    price_per_hour: NotRequired[float | None]
    confirm_profile: NotRequired[bool]


class NodeSample(TypedDict):
    kv_used_pages: int | None
    kv_total_pages: int | None
    sequences: int | None
    busy_ratio: float | None
    tokens_per_s: float | None
    flow_share: float | None
    kv_promised_ratio: float | None


NodeStateEnum: TypeAlias = "Literal['declared', 'online', 'lost']"


class NodeSteps(TypedDict):
    """`longer`: a share of what its profile says; `error`: one standard error of that."""

    name: str
    profile: str
    predicted_ms: float | None
    measured_ms: float | None
    longer: float | None
    error: float | None
    estimated: bool
    holds: bool | None


NullEnum: TypeAlias = "None"


OccasionEnum: TypeAlias = "Literal['alerts', 'test', 'alive']"


OriginEnum: TypeAlias = "Literal['imported', 'measured', 'refined', 'estimated', 'entered']"


class Outcome(TypedDict):
    """The first thousand steps; `left_out` are more. `counts` counts all."""

    applied: bool
    digest: str
    counts: list[Count]
    steps: list[Step]
    left_out: int


class PatchedChannelRequest(TypedDict):
    """`secret` signs what is posted; it is in the answer to its making, and then no more."""

    cluster: NotRequired[int]
    name: NotRequired[str]
    way: NotRequired[WayEnum]
    url: NotRequired[str]
    addresses: NotRequired[dict[str, Any]]
    enabled: NotRequired[bool]
    send_resolved: NotRequired[bool]
    least_severity: NotRequired[AlertSeverityEnum]
    alive_every_s: NotRequired[float | None]


class PatchedClusterRequest(TypedDict):
    """Checks the fields, then calls the service."""

    name: NotRequired[str]
    coordinator_region: NotRequired[str]
    mean_prompt_tokens: NotRequired[float]
    mean_output_tokens: NotRequired[float]
    replanning: NotRequired[ReplanningEnum]
    source: NotRequired[str]


class PatchedGroupRequest(TypedDict):
    """`members` are user names."""

    name: NotRequired[str]
    members: NotRequired[list[str]]


class PatchedLanguageModelRequest(TypedDict):
    """Checks the fields, then calls the service."""

    name: NotRequired[str]
    num_layers: NotRequired[int]
    activation_bytes_per_token: NotRequired[float]
    token_bytes: NotRequired[float]
    bytes_per_layer: NotRequired[float]
    checkpoint: NotRequired[str]
    max_context_tokens: NotRequired[int]
    num_heads: NotRequired[int | None]
    num_kv_heads: NotRequired[int | None]
    head_dim: NotRequired[int | None]
    embedding_bytes: NotRequired[float | None]
    head_bytes: NotRequired[float | None]
    architecture: NotRequired[str]
    dtype: NotRequired[str]
    why_not_split: NotRequired[str]
    engine: NotRequired[EngineEnum]
    vllm_flags: NotRequired[str]


class PatchedLinkRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: NotRequired[int]
    source: NotRequired[str]
    target: NotRequired[str]
    bandwidth_bytes_per_s: NotRequired[float]
    latency_s: NotRequired[float]
    origin: NotRequired[OriginEnum]


class PatchedNodeRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: NotRequired[int]
    name: NotRequired[str]
    region: NotRequired[str]
    profile_name: NotRequired[str]
    price_per_hour: NotRequired[float | None]
    confirm_profile: NotRequired[bool]


class PatchedProfileRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: NotRequired[int]
    model: NotRequired[int]
    name: NotRequired[str]
    gpu: NotRequired[str]
    vram_bytes: NotRequired[float]
    max_layers: NotRequired[int]
    tokens_per_s: NotRequired[list[float]]
    kv_capacity_token_layers: NotRequired[list[float]]
    layer_times: NotRequired[ProfileLayerTimesRequest | None]
    batch_limits: NotRequired[BatchLimitsRequest | None]
    memory: NotRequired[ProfileMemoryRequest | None]
    price_per_hour: NotRequired[float | None]
    origin: NotRequired[OriginEnum]


class PatchedRegionLinkRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: NotRequired[int]
    source: NotRequired[str]
    target: NotRequired[str]
    bandwidth_bytes_per_s: NotRequired[float]
    latency_s: NotRequired[float]
    origin: NotRequired[OriginEnum]


class PatchedRuleRequest(TypedDict):
    """`channels`: none means all of the cluster's."""

    cluster: NotRequired[int]
    name: NotRequired[str]
    kind: NotRequired[AlertKindEnum]
    threshold: NotRequired[float]
    clears_at: NotRequired[float]
    for_s: NotRequired[float]
    resolve_s: NotRequired[float]
    severity: NotRequired[AlertSeverityEnum]
    enabled: NotRequired[bool]
    channels: NotRequired[list[int]]


class PatchedSharedBandwidthRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: NotRequired[int]
    name: NotRequired[str]
    members: NotRequired[list[str]]
    direction: NotRequired[DirectionEnum]
    scope: NotRequired[ScopeEnum]
    bandwidth_bytes_per_s: NotRequired[float]


class PatchedSilenceRequest(TypedDict):
    """Without `rule` of all rules, without `subject` of all subjects; it begins now unless told."""

    cluster: NotRequired[int]
    rule: NotRequired[int | None]
    subject: NotRequired[str]
    starts_at: NotRequired[str]
    ends_at: NotRequired[str]
    comment: NotRequired[str]


class PatchedUserChangeRequest(TypedDict):
    """Whether the user may log in."""

    is_active: NotRequired[bool]


PhaseEnum: TypeAlias = "Literal['idle', 'loading', 'ready', 'stopping', 'failed']"


class Pin(TypedDict):
    """Layers [first, end) of a pinned node."""

    first: int
    end: int


class PinRequest(TypedDict):
    """Layers [first, end) of a pinned node."""

    first: int
    end: int


class PlacementRules(TypedDict):
    """What every placement must honour; nothing by default."""

    max_hops: NotRequired[int | None]
    excluded_nodes: NotRequired[list[str]]
    pinned: NotRequired[dict[str, Pin]]
    max_layers_per_node: NotRequired[int | None]
    max_layers_of: NotRequired[dict[str, int]]
    kv_reserve_tokens: NotRequired[float]


class PlacementRulesRequest(TypedDict):
    """What every placement must honour; nothing by default."""

    max_hops: NotRequired[int | None]
    excluded_nodes: NotRequired[list[str]]
    pinned: NotRequired[dict[str, PinRequest]]
    max_layers_per_node: NotRequired[int | None]
    max_layers_of: NotRequired[dict[str, int]]
    kv_reserve_tokens: NotRequired[float]


PlacerEnum: TypeAlias = "Literal['auto', 'milp', 'stage-patterns', 'region-chain', 'stage-annealing', 'interval-annealing']"


class Plan(TypedDict):
    """`document` is the whole plan as `helixweb.plan/1`."""

    id: int
    cluster: int
    model: int
    run: int | None
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float
    gap: float
    hops: float
    created_at: str
    document: dict[str, Any]


class PlanOptions(TypedDict):
    """How to search; what is left out takes its default."""

    time_limit_s: NotRequired[float]
    objective: NotRequired[PlanOptionsObjectiveEnum]
    ttft_limit_s: NotRequired[float | None]
    tpot_limit_s: NotRequired[float | None]
    demand_tokens_per_s: NotRequired[float | None]
    partial_inference: NotRequired[bool]
    placer: NotRequired[PlacerEnum]
    solver: NotRequired[SolverEnum]
    prune_degree: NotRequired[float | None]
    warm_start: NotRequired[WarmStartEnum]
    relative_gap: NotRequired[float]
    baselines: NotRequired[list[BaselinesEnum]]
    seed: NotRequired[int]
    rules: NotRequired[PlacementRules]
    method: NotRequired[PlanOptionsMethodEnum]
    backend: NotRequired[BackendEnum]
    tensor_parallel: NotRequired[int | None]


PlanOptionsMethodEnum: TypeAlias = "Literal['pipelines', 'instances', 'mixed']"


PlanOptionsObjectiveEnum: TypeAlias = "Literal['decode', 'flow', 'latency', 'cost', 'fewest_nodes']"


class PlanOptionsRequest(TypedDict):
    """How to search; what is left out takes its default."""

    time_limit_s: NotRequired[float]
    objective: NotRequired[PlanOptionsObjectiveEnum]
    ttft_limit_s: NotRequired[float | None]
    tpot_limit_s: NotRequired[float | None]
    demand_tokens_per_s: NotRequired[float | None]
    partial_inference: NotRequired[bool]
    placer: NotRequired[PlacerEnum]
    solver: NotRequired[SolverEnum]
    prune_degree: NotRequired[float | None]
    warm_start: NotRequired[WarmStartEnum]
    relative_gap: NotRequired[float]
    baselines: NotRequired[list[BaselinesEnum]]
    seed: NotRequired[int]
    rules: NotRequired[PlacementRulesRequest]
    method: NotRequired[PlanOptionsMethodEnum]
    backend: NotRequired[BackendEnum]
    tensor_parallel: NotRequired[int | None]


class PlanRun(TypedDict):
    """`plan` is the id of the plan it ended in, null while there is none.

    What it shows as `options` can be sent as those of another run.
    """

    id: int
    cluster: int
    model: int
    status: TaskStatusEnum
    attempt: int
    cancel_requested: bool
    accept_requested: bool
    error: str
    options: PlanOptions
    survive_one_loss: bool
    what_if: str
    start_plan: int | None
    continues: int | None
    mix: int | None
    solver: str
    flow_tokens_per_s: float | None
    upper_bound_tokens_per_s: float | None
    gap: float | None
    objective_value: float | None
    plan: int | None
    created_by: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class PlanRunRequestRequest(TypedDict):
    """What to plan, and how to search."""

    cluster: int
    model: int
    options: NotRequired[PlanOptionsRequest]
    start_plan: NotRequired[int | None]
    survive_one_loss: NotRequired[bool]


class PlanSummary(TypedDict):
    id: int
    cluster: int
    model: int
    run: int | None
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float
    gap: float
    hops: float
    created_at: str


class Point(TypedDict):
    """One step from `at` on: means, but maxima of the 95th percentiles."""

    at: str
    output_tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    ttft_p50_s: float | None
    itl_p50_s: float | None
    tpot_p50_s: float | None
    e2e_p50_s: float | None
    running: float | None
    waiting: float | None
    ttft_p95_s: float | None
    itl_p95_s: float | None
    tpot_p95_s: float | None
    e2e_p95_s: float | None


PolicyEnum: TypeAlias = "Literal['runtime', 'published']"


class Profile(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    cluster: int
    model: int
    name: str
    gpu: NotRequired[str]
    vram_bytes: float
    max_layers: int
    tokens_per_s: list[float]
    kv_capacity_token_layers: list[float]
    layer_times: NotRequired[ProfileLayerTimes | None]
    batch_limits: NotRequired[BatchLimits | None]
    memory: NotRequired[ProfileMemory | None]
    price_per_hour: NotRequired[float | None]
    origin: NotRequired[OriginEnum]
    recorded_at: str | None


class ProfileBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Profile]
    created: list[Profile]


class ProfileBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedProfileRequest]]
    create: NotRequired[list[ProfileRequest]]
    if_match: NotRequired[dict[str, str]]


class ProfileEndRoom(TypedDict):
    """The most layers that a node can hold at an end of the model, and the KV room lost there."""

    max_layers: int
    kv_token_layers_less: NotRequired[float]


class ProfileEndRoomRequest(TypedDict):
    """The most layers that a node can hold at an end of the model, and the KV room lost there."""

    max_layers: int
    kv_token_layers_less: NotRequired[float]


class ProfileImportRequest(TypedDict):
    """A `helixweb.profile/1` document for a cluster, called `name` or as it says itself."""

    cluster: int
    name: NotRequired[str]
    document: dict[str, Any]


class ProfileKvMinimum(TypedDict):
    """KV cache that layers must leave room for: so many requests of so many tokens."""

    requests: int
    tokens: int


class ProfileKvMinimumRequest(TypedDict):
    """KV cache that layers must leave room for: so many requests of so many tokens."""

    requests: int
    tokens: int


class ProfileLayerTimes(TypedDict):
    """Seconds one layer takes for a batch: points of (tokens, seconds), tokens rising."""

    prompt: list[list[float]]
    decode: list[list[float]]
    prompt_step_s: NotRequired[float]
    decode_step_s: NotRequired[float]
    head_s: NotRequired[float]
    handling_s: NotRequired[float]
    hop_s: NotRequired[float]


class ProfileLayerTimesRequest(TypedDict):
    """Seconds one layer takes for a batch: points of (tokens, seconds), tokens rising."""

    prompt: list[list[float]]
    decode: list[list[float]]
    prompt_step_s: NotRequired[float]
    decode_step_s: NotRequired[float]
    head_s: NotRequired[float]
    handling_s: NotRequired[float]
    hop_s: NotRequired[float]


class ProfileMemory(TypedDict):
    """What is left where a node holds the embedding, the output head, or both as well."""

    first: ProfileEndRoom
    last: ProfileEndRoom
    both: ProfileEndRoom
    kv_minimum: NotRequired[ProfileKvMinimum]
    reserve_bytes: NotRequired[float]


class ProfileMemoryRequest(TypedDict):
    """What is left where a node holds the embedding, the output head, or both as well."""

    first: ProfileEndRoomRequest
    last: ProfileEndRoomRequest
    both: ProfileEndRoomRequest
    kv_minimum: NotRequired[ProfileKvMinimumRequest]
    reserve_bytes: NotRequired[float]


class ProfileRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: int
    model: int
    name: str
    gpu: NotRequired[str]
    vram_bytes: float
    max_layers: int
    tokens_per_s: list[float]
    kv_capacity_token_layers: list[float]
    layer_times: NotRequired[ProfileLayerTimesRequest | None]
    batch_limits: NotRequired[BatchLimitsRequest | None]
    memory: NotRequired[ProfileMemoryRequest | None]
    price_per_hour: NotRequired[float | None]
    origin: NotRequired[OriginEnum]


class ProfileVersion(TypedDict):
    """What a profile was found to be once; `document` is as in a problem file."""

    id: int
    profile: int
    number: int
    origin: OriginEnum
    node: str
    document: dict[str, Any]
    evidence: dict[str, Any] | None
    recorded_at: str


class Profiling(TypedDict):
    """An order to measure a node for a model, how far it is, and about how long it still takes."""

    id: int
    node: int
    model: int
    state: ProfilingStateEnum
    done: float
    left_s: float | None
    message: str
    version: int | None
    like: int | None
    created_by: int | None
    created_at: str
    began_at: str | None
    ended_at: str | None


class ProfilingRequest(TypedDict):
    """An order to measure a node for a model, how far it is, and about how long it still takes."""

    node: int
    model: int


ProfilingStateEnum: TypeAlias = "Literal['ordered', 'waiting', 'measuring', 'done', 'failed', 'cancelled']"


QuantityEnum: TypeAlias = "Literal['output tokens/s', 'TTFT, median', 'TPOT, median']"


class Reachability(TypedDict):
    """Of the coordinators and nodes that can be heard; `untried` have not reported yet.

    `cut` are data ports that are not reached. A plan that needs one cannot be deployed.
    `weights_cut` are ports at which nodes serve weights: without them weights come from the site or
    the hub.
    """

    processes: int
    untried: list[str]
    cut: list[CutPair]
    weights_cut: list[CutPair]


class RegionLink(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    cluster: int
    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float
    origin: NotRequired[OriginEnum]
    recorded_at: str | None


class RegionLinkBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[RegionLink]
    created: list[RegionLink]


class RegionLinkBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedRegionLinkRequest]]
    create: NotRequired[list[RegionLinkRequest]]
    if_match: NotRequired[dict[str, str]]


class RegionLinkRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: int
    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float
    origin: NotRequired[OriginEnum]


class Repair(TypedDict):
    """What is done about nodes that a deployment lost, or that joined since its plan was made.

    `flow_tokens_per_s` instead of `unmoved_tokens_per_s` for `moved_bytes` of layers to load; null
    until the search has ended.
    """

    id: int
    deployment: int
    state: RepairStateEnum
    lost: list[str]
    added: list[str]
    run: int | None
    unmoved_tokens_per_s: float | None
    flow_tokens_per_s: float | None
    moved_bytes: float | None
    why: str
    noticed_at: str


RepairStateEnum: TypeAlias = "Literal['waiting', 'computing', 'offered', 'deployed', 'needless', 'failed', 'dismissed', 'overtaken']"


class Replan(TypedDict):
    """`points` rise in bytes and in flow; `budget_bytes` null: as much as it takes."""

    running_plan: int
    budget_bytes: float | None
    points: list[ReplanPoint]


class ReplanPoint(TypedDict):
    """An answer that no other beats in both flow and bytes moved; see Incumbent's components."""

    placement: dict[str, list[int]]
    components: list[list[str]]
    flow_tokens_per_s: float
    moved_bytes: float
    method: str


class ReplanRequestRequest(TypedDict):
    """How to search around a plan that runs."""

    budget_bytes: NotRequired[float | None]
    options: NotRequired[FlowOptionsRequest]


ReplanningEnum: TypeAlias = "Literal['automatic', 'ask', 'never']"


RoleOfPersonEnum: TypeAlias = "Literal['viewer', 'operator', 'admin']"


class RoleOnCluster(TypedDict):
    cluster: int
    role: RoleOfPersonEnum


class Rule(TypedDict):
    """`channels`: none means all of the cluster's."""

    id: int
    cluster: int
    name: str
    kind: AlertKindEnum
    threshold: float
    clears_at: float
    unit: str
    for_s: NotRequired[float]
    resolve_s: NotRequired[float]
    severity: NotRequired[AlertSeverityEnum]
    enabled: NotRequired[bool]
    channels: NotRequired[list[int]]


class RuleBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Rule]
    created: list[Rule]


class RuleBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedRuleRequest]]
    create: NotRequired[list[RuleRequest]]
    if_match: NotRequired[dict[str, str]]


class RuleRequest(TypedDict):
    """`channels`: none means all of the cluster's."""

    cluster: int
    name: str
    kind: AlertKindEnum
    threshold: float
    clears_at: float
    for_s: NotRequired[float]
    resolve_s: NotRequired[float]
    severity: NotRequired[AlertSeverityEnum]
    enabled: NotRequired[bool]
    channels: NotRequired[list[int]]


class Sample(TypedDict):
    """What the coordinator reported last. Percentiles are null while nothing finished."""

    cluster: int
    at: str
    simulated: bool
    generation: int
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    itl_p50_s: float | None
    itl_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    e2e_p50_s: float | None
    e2e_p95_s: float | None
    running: int
    waiting: int
    nodes: dict[str, NodeSample]


ScopeEnum: TypeAlias = "Literal['region', 'nic']"


ScopesEnum: TypeAlias = "Literal['read', 'write', 'serve', 'admin']"


class Secret(TypedDict):
    secret: str


class Series(TypedDict):
    cluster: int
    since: str
    step_s: int
    simulated: bool
    points: list[Point]


class Session(TypedDict):
    """A log-in that goes on."""

    id: int
    address: str
    browser: str
    began_at: str


class SharedBandwidth(TypedDict):
    """Checks the fields, then calls the service."""

    id: int
    cluster: int
    name: str
    members: list[str]
    direction: DirectionEnum
    scope: ScopeEnum
    bandwidth_bytes_per_s: float


class SharedBandwidthBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[SharedBandwidth]
    created: list[SharedBandwidth]


class SharedBandwidthBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedSharedBandwidthRequest]]
    create: NotRequired[list[SharedBandwidthRequest]]
    if_match: NotRequired[dict[str, str]]


class SharedBandwidthRequest(TypedDict):
    """Checks the fields, then calls the service."""

    cluster: int
    name: str
    members: list[str]
    direction: DirectionEnum
    scope: ScopeEnum
    bandwidth_bytes_per_s: float


class Silence(TypedDict):
    """Without `rule` of all rules, without `subject` of all subjects; it begins now unless told."""

    id: int
    cluster: int
    rule: NotRequired[int | None]
    subject: NotRequired[str]
    starts_at: NotRequired[str]
    ends_at: str
    comment: NotRequired[str]


class SilenceBatchDone(TypedDict):
    """The rows as they are now."""

    deleted: list[int]
    updated: list[Silence]
    created: list[Silence]


class SilenceBatchRequest(TypedDict):
    """At most 500 rows to delete, to change by id, and to make, in this order. `if_match`: the ETags of rows as they were read, by id."""

    delete: NotRequired[list[int]]
    update: NotRequired[dict[str, PatchedSilenceRequest]]
    create: NotRequired[list[SilenceRequest]]
    if_match: NotRequired[dict[str, str]]


class SilenceRequest(TypedDict):
    """Without `rule` of all rules, without `subject` of all subjects; it begins now unless told."""

    cluster: int
    rule: NotRequired[int | None]
    subject: NotRequired[str]
    starts_at: NotRequired[str]
    ends_at: str
    comment: NotRequired[str]


class Simulated(TypedDict):
    """Figures of a plan's newest offline simulation under the runtime's policy."""

    decode_tokens_per_s: float
    prompt_tokens_per_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p50_s: float
    tpot_p95_s: float


class Simulation(TypedDict):
    """`forecast` is null until it has ended; its times are in seconds, its shares 0 to 1."""

    id: int
    plan: int
    status: TaskStatusEnum
    progress: float
    error: str
    workload: WorkloadEnum
    share: float | None
    burst_size: int | None
    policy: PolicyEnum
    seed: int
    requests_per_s: float | None
    forecast: dict[str, Any]
    created_by: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class SimulationRequestRequest(TypedDict):
    """Which plan to serve what. `share` is of the plan's peak, when requests always wait."""

    plan: int
    workload: NotRequired[WorkloadEnum]
    share: NotRequired[float | None]
    burst_size: NotRequired[int | None]
    policy: NotRequired[PolicyEnum]
    seed: NotRequired[int]


SolverEnum: TypeAlias = "Literal['auto', 'gurobi', 'highs']"


SourceEnum: TypeAlias = "Literal['agent', 'stage']"


class Step(TypedDict):
    """One row; `before` and `after` hold the keys that differ, `place` where the file says so."""

    action: StepActionEnum
    kind: ImportedKindEnum
    cluster: str
    name: str
    before: dict[str, Any]
    after: dict[str, Any]
    place: str


StepActionEnum: TypeAlias = "Literal['add', 'change', 'remove']"


TaskStatusEnum: TypeAlias = "Literal['queued', 'running', 'succeeded', 'failed', 'cancelled']"


class TracedRequest(TypedDict):
    """Times in seconds. `tpot_s` is null unless the answer is complete and has two tokens."""

    request: str
    cluster: int
    arrived_at: str
    generation: int
    model_name: str
    outcome: str
    prompt_tokens: int
    output_tokens: int
    queue_s: float
    ttft_s: NotRequired[float | None]
    tpot_s: NotRequired[float | None]
    e2e_s: float
    attempts: int
    nodes: list[str]


class TracedRequestDetail(TypedDict):
    """With its parts, which add up to `e2e_s`, its time line and when its tokens came."""

    request: str
    cluster: int
    arrived_at: str
    generation: int
    model_name: str
    outcome: str
    prompt_tokens: int
    output_tokens: int
    queue_s: float
    ttft_s: NotRequired[float | None]
    tpot_s: NotRequired[float | None]
    e2e_s: float
    attempts: int
    nodes: list[str]
    parts: dict[str, Any]
    rows: dict[str, Any]
    token_times_s: list[float]


class Unmoved(TypedDict):
    """A plan's placement on the cluster as it is now, no layer moved."""

    flow_tokens_per_s: float
    gone: list[str]
    added: list[str]
    silent: list[str]
    changes: list[str]


class User(TypedDict):
    """`role` is given to a new user on the whole site; roles are changed by /grants/.

    `login_link` is in the answer to who made the user, and shown this once.
    """

    id: int
    username: str
    is_active: NotRequired[bool]
    is_superuser: bool
    grants: list[Grant]
    groups: list[str]
    last_login: str | None
    date_joined: str
    login_link: str | None


class UserRequest(TypedDict):
    """`role` is given to a new user on the whole site; roles are changed by /grants/.

    `login_link` is in the answer to who made the user, and shown this once.
    """

    username: str
    is_active: NotRequired[bool]
    role: NotRequired[RoleOfPersonEnum | NullEnum]


WarmStartEnum: TypeAlias = "Literal['best', 'none', 'separate_pipelines', 'swarm', 'petals']"


WayEnum: TypeAlias = "Literal['webhook', 'email']"


class WeightRequest(TypedDict):
    """A model, and its share: flows become large in the proportions of the weights."""

    model: int
    weight: NotRequired[float]


class WhatIfAnswer(TypedDict):
    """`run` is the search on the copy, null where none was asked for."""

    before: Worth
    after: Worth
    run: int | None


class WhatIfRequest(TypedDict):
    """Changes to a copy of the plan's cluster; `options` given: search on it too."""

    removed: NotRequired[list[str]]
    added: NotRequired[list[AddedNodesRequest]]
    upgraded: NotRequired[dict[str, str]]
    links: NotRequired[list[ChangedLinkRequest]]
    options: NotRequired[PlanOptionsRequest | None]


WorkloadEnum: TypeAlias = "Literal['backlog', 'poisson', 'bursts']"


class Worth(TypedDict):
    """By the estimate, while requests always wait; the flow and its bound are exact."""

    nodes_used: int
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float
    decode_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    requests_in_flight: float
    price_per_hour: float | None
    million_tokens_per_price: float | None

"""An agent's /metrics: its stage's cache and speed, and how it is with helixweb.

Requests are counted by coordinators, so that none is counted twice; of vLLM's names only those of
an engine's own cache are here.
"""

from collections.abc import Iterator

from prometheus_client import Metric

from runtime.protocol.control import LinkStats, ObservedState, StageStats
from runtime.protocol.exposition import counter, gauge, page, states
from runtime.protocol.phases import Phase


def metrics_page(
    observed: ObservedState | None,
    *,
    node: str,
    model_name: str,
    heartbeat_age_s: float | None,
    heartbeats_failed_total: int,
) -> bytes:
    """`observed` None: it does not know yet what is wanted; `heartbeat_age_s` None: it was never
    heard."""
    families = list(_of_agent(node, heartbeat_age_s, heartbeats_failed_total))
    if observed is not None:
        families += _of_state(observed, node)
        if observed.stage is not None:
            families += _of_stage(observed.stage, node, model_name)
            families += _of_links(observed.stage.links, node)
    return page(families)


def _of_agent(node: str, age_s: float | None, failed: int) -> Iterator[Metric]:
    labels = {"node": node}
    age = "Since helixweb took a heartbeat of this agent"
    refused = "Heartbeats that helixweb did not take"
    yield gauge("helix_agent_heartbeat_age_seconds", age, [(labels, age_s)])
    yield counter("helix_agent_heartbeats_failed_total", refused, [(labels, failed)])


def _of_state(observed: ObservedState, node: str) -> Iterator[Metric]:
    labels = {"node": node}
    generation = "Generation of the deployment that this agent acts on; 0: none"
    loaded = "Share of the weights that was read, while they are"
    yield gauge("helix_agent_generation", generation, [(labels, observed.generation)])
    yield states(
        "helix_agent_phase",
        "1 at the phase the node is in",
        labels,
        state=observed.phase.value,
        known=[phase.value for phase in Phase],
    )
    yield gauge("helix_agent_loaded_ratio", loaded, [(labels, observed.loaded_ratio)])


def _of_stage(stage: StageStats, node: str, model_name: str) -> Iterator[Metric]:
    labels, model = {"node": node}, {"model_name": model_name, "node": node}
    usage = "Share of the KV cache that is in use, 0 to 1"
    preempted = "Sequences whose pages were taken for others"
    if stage.kv_pages_total > 0:
        share = stage.kv_pages_used / stage.kv_pages_total
        yield gauge("vllm:kv_cache_usage_perc", usage, [(model, share)])
    yield counter("vllm:num_preemptions_total", preempted, [(model, stage.preemptions_total)])
    yield gauge("helix_agent_sequences", "Sequences in the stage", [(labels, stage.sequences)])
    yield _of_kinds(
        "helix_agent_kv_pages",
        "Pages of the KV cache: in use, kept for a prompt that may come again, and all",
        labels,
        used=stage.kv_pages_used,
        cached=stage.kv_pages_cached,
        total=stage.kv_pages_total,
    )
    yield _of_kinds(
        "helix_agent_memory_bytes",
        "What the stage holds",
        labels,
        weights=stage.weights_bytes,
        kv=stage.kv_bytes,
    )
    for name, words, value in (
        ("steps", "Steps of the stage", stage.steps_total),
        ("prompt_tokens", "Prompt tokens computed", stage.prompt_tokens_total),
        ("decode_tokens", "Tokens decoded", stage.decode_tokens_total),
        ("prefix_tokens", "Prompt tokens whose pages were there", stage.prefix_tokens_total),
        ("busy_seconds", "Time spent in steps", stage.busy_s_total),
        ("delayed_seconds", "Of it, waiting for a core", stage.delayed_s_total),
    ):
        yield counter(f"helix_agent_{name}_total", words, [(labels, value)])


def _of_kinds(name: str, words: str, labels: dict[str, str], **numbers: float) -> Metric:
    return gauge(name, words, [({**labels, "kind": kind}, each) for kind, each in numbers.items()])


def _of_links(links: dict[str, LinkStats], node: str) -> Iterator[Metric]:
    ends = [({"source": node, "target": peer}, link) for peer, link in links.items()]
    rate = "As measured; a floor until the link was seen full"
    for name, words, field in (
        ("bandwidth_bytes_per_second", rate, "bandwidth_bytes_per_s"),
        ("rtt_seconds", "Round trip of the idle link", "rtt_s"),
        ("queueing_seconds", "How much longer the last round trip took", "queueing_s"),
    ):
        values = [(end, getattr(link, field)) for end, link in ends]
        yield gauge(f"helix_agent_link_{name}", words, values)
    lanes = [
        ({**end, "lane": lane}, sent)
        for end, link in ends
        for lane, sent in (("urgent", link.urgent_bytes_total), ("bulk", link.bulk_bytes_total))
    ]
    sent = "Sent, decodes and control urgently, prompts in bulk"
    yield counter("helix_agent_link_bytes_total", sent, lanes)

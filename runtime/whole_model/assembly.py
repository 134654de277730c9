"""What stage, dispatcher and /metrics are given when one stage holds the whole model; pure.

The metrics have vLLM's names, so that what reads vLLM's reads ours.
"""

from pathlib import Path

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.coordinator.metrics import metrics_of_requests
from runtime.coordinator.request_stats import RequestStats
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import PeerAddress, ServingPlan, StageAssignment, StageStats
from runtime.protocol.exposition import counter, info, page

STAGE = "whole"
GENERATION = 1
DEPLOYMENT_ID = 0
_MEAN_PROMPT_TOKENS, _MEAN_OUTPUT_TOKENS = 256, 256  # until answers say better
_MOST_QUEUED = 4096  # the front that routes to us knows what waits here


class CannotServe(StartRefused):
    """What was asked for cannot be served; the message names the remedy."""


def stage_assignment(
    *,
    model_name: str,
    checkpoint: Path,
    sizes: DecoderSizes,
    max_context_tokens: int | None,
    tensor_parallel: int,
    coordinator: PeerAddress,
) -> StageAssignment:
    """All layers; `max_context_tokens` None: as many as the model takes."""
    return StageAssignment(
        deployment_id=DEPLOYMENT_ID,
        generation=GENERATION,
        model_name=model_name,
        checkpoint=str(checkpoint),
        first=0,
        end=sizes.num_layers,
        num_layers=sizes.num_layers,
        max_context_tokens=max_context_tokens or sizes.max_position_embeddings,
        tensor_parallel=tensor_parallel,
        peers=(coordinator,),
    )


def serving_plan(assignment: StageAssignment, *, stage: PeerAddress, emulated: bool) -> ServingPlan:
    """One pipeline of one stage."""
    layers = LayerRange(first=0, end=assignment.num_layers)
    return ServingPlan(
        deployment_id=assignment.deployment_id,
        generation=assignment.generation,
        model_name=assignment.model_name,
        checkpoint=assignment.checkpoint,
        num_layers=assignment.num_layers,
        partial_inference=False,
        placement=Placement(layers={STAGE: layers}),
        routing_weights={SOURCE: {STAGE: 1.0}, STAGE: {SINK: 1.0}},
        workload=Workload(
            mean_prompt_tokens=_MEAN_PROMPT_TOKENS, mean_output_tokens=_MEAN_OUTPUT_TOKENS
        ),
        max_context_tokens=assignment.max_context_tokens,
        page_tokens=assignment.page_tokens,
        max_queued_requests=_MOST_QUEUED,
        emulated=emulated,
        peers=(stage,),
    )


def metrics_page(
    stats: RequestStats, *, plan: ServingPlan, running: int, waiting: int, stage: StageStats | None
) -> bytes:
    """`stage` None: it is not up, and nothing is known of its pages.

    A page here is one layer's, so that a block of vLLM's is as many pages as there are layers.
    """
    pages = 0 if stage is None else stage.kv_pages_total
    metrics = [
        *metrics_of_requests(
            stats,
            model_name=plan.model_name,
            running=running,
            waiting=waiting,
            kv_usage=stage.kv_pages_used / pages if stage is not None and pages else None,
        )
    ]
    if stage is not None and pages:
        cache = {
            "block_size": str(plan.page_tokens),
            "num_gpu_blocks": str(pages // plan.num_layers),
        }
        labels = {"model_name": plan.model_name}
        metrics += [
            counter(
                "vllm:num_preemptions_total", "Preemptions", [(labels, stage.preemptions_total)]
            ),
            info("vllm:cache_config", "Pages of the KV cache", cache),
        ]
    return page(metrics)

"""What stage, dispatcher and /metrics are given when one stage holds the whole model; pure.

The metrics have vLLM's names, so that what reads vLLM's reads ours.
"""

from dataclasses import dataclass
from pathlib import Path

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import CONFIG, read_object
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """What is needed of a checkpoint's config without loading it."""

    num_layers: int
    context_tokens: int


def depth_of(checkpoint: Path) -> Depth:
    """Raises CannotServe."""
    try:
        config = read_object(checkpoint, CONFIG) or {}
        config = config.get("text_config", config)
        return Depth(
            num_layers=int(config["num_hidden_layers"]),
            context_tokens=int(config["max_position_embeddings"]),
        )
    except CheckpointError as error:
        raise CannotServe(str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotServe(
            f"{checkpoint / CONFIG} does not say num_hidden_layers and max_position_embeddings "
            f"({error!r}); give --checkpoint the directory of a Hugging Face checkpoint, or a GGUF "
            "file"
        ) from error


def stage_assignment(
    *,
    model_name: str,
    checkpoint: Path,
    depth: Depth,
    max_context_tokens: int,
    tensor_parallel: int,
    coordinator: PeerAddress,
) -> StageAssignment:
    """All layers."""
    return StageAssignment(
        deployment_id=DEPLOYMENT_ID,
        generation=GENERATION,
        model_name=model_name,
        checkpoint=str(checkpoint),
        first=0,
        end=depth.num_layers,
        num_layers=depth.num_layers,
        max_context_tokens=max_context_tokens,
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

"""/metrics under vLLM's names, so that what reads vLLM's reads ours; pure."""

from runtime.coordinator.metrics import metrics_of_requests
from runtime.coordinator.request_stats import RequestStats
from runtime.protocol.control import ServingPlan, StageStats
from runtime.protocol.exposition import counter, info, page


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

"""/metrics under vLLM's names, so that what reads vLLM's reads ours; pure."""

from prometheus_client import Metric

from runtime.protocol.control import StageStats
from runtime.protocol.exposition import counter, gauge, info, page


def metrics_page(
    *,
    model_name: str,
    requests_running: int,
    requests_waiting: int,
    prompt_tokens_total: int,
    output_tokens_total: int,
    stage: StageStats | None,
    num_layers: int,
    page_tokens: int,
) -> bytes:
    """`stage` None: it is not up, and nothing is known of its pages.

    A page here is one layer's, so that a block of vLLM's is as many pages as there are layers.
    """
    model = {"model_name": model_name}
    told: list[Metric] = [
        gauge("vllm:num_requests_running", "Requests that run", [(model, requests_running)]),
        gauge("vllm:num_requests_waiting", "Requests that wait", [(model, requests_waiting)]),
        counter("vllm:prompt_tokens_total", "Tokens read", [(model, prompt_tokens_total)]),
        counter("vllm:generation_tokens_total", "Tokens written", [(model, output_tokens_total)]),
    ]
    if stage is not None and stage.kv_pages_total > 0:
        usage = stage.kv_pages_used / stage.kv_pages_total
        preemptions = stage.preemptions_total
        cache = {
            "block_size": str(page_tokens),
            "num_gpu_blocks": str(stage.kv_pages_total // num_layers),
        }
        told += [
            gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use", [(model, usage)]),
            counter("vllm:num_preemptions_total", "Preemptions", [(model, preemptions)]),
            info("vllm:cache_config", "Pages of the KV cache", cache),
        ]
    return page(told)

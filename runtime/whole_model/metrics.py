"""/metrics under vLLM's names, so that what reads vLLM's reads ours; pure."""

from runtime.protocol.control import StageStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
) -> str:
    """`stage` None: it is not up, and nothing is known of its pages.

    A page here is one layer's, so that a block of vLLM's is as many pages as there are layers.
    """
    label = f'{{model_name="{_escaped(model_name)}"}}'
    metrics = [
        ("gauge", "num_requests_running", label, f"{requests_running}"),
        ("gauge", "num_requests_waiting", label, f"{requests_waiting}"),
        ("counter", "prompt_tokens_total", label, f"{prompt_tokens_total}"),
        ("counter", "generation_tokens_total", label, f"{output_tokens_total}"),
    ]
    if stage is not None and stage.kv_pages_total > 0:
        blocks = stage.kv_pages_total // num_layers
        config = f'{{block_size="{page_tokens}",num_gpu_blocks="{blocks}"}}'
        usage = stage.kv_pages_used / stage.kv_pages_total
        metrics += [
            ("gauge", "kv_cache_usage_perc", label, f"{usage:.6f}"),
            ("counter", "num_preemptions_total", label, f"{stage.preemptions_total}"),
            ("gauge", "cache_config_info", config, "1"),
        ]
    return "".join(
        f"# TYPE vllm:{name} {kind}\nvllm:{name}{labels} {value}\n"
        for kind, name, labels, value in metrics
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""`vllm serve` of a checkpoint, with the defaults that people have."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from cluster import API_KEY, MODEL, Running, await_ready, free_port


@contextmanager
def running_vllm(
    python: Path,
    checkpoint: Path,
    folder: Path,
    *,
    dtype: str,
    max_context_tokens: int,
    kv_gib: int,
) -> Iterator[Running]:
    """Ready to serve; `python` is the interpreter of vLLM's environment."""
    folder.mkdir(parents=True)
    port = free_port()
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(kv_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # to the cores that we are bound to
    }
    with (folder / "vllm.log").open("wb") as log:
        process = subprocess.Popen(
            [
                python,  # the command `vllm` of vllm-cpu asks for the version of a package `vllm`
                "-m",
                "vllm.entrypoints.openai.api_server",
                f"--model={checkpoint}",
                "--host=127.0.0.1",
                f"--port={port}",
                f"--api-key={API_KEY}",
                f"--served-model-name={MODEL}",
                f"--dtype={dtype}",  # it would compute float32 in bfloat16
                f"--max-model-len={max_context_tokens}",
                "--no-enable-prefix-caching",
                "--disable-uvicorn-access-log",
            ],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await_ready(url, [process], folder)
        server = psutil.Process(process.pid)
        yield Running(url=url, processes=(server, *server.children(recursive=True)))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # while it compiles it hears nothing
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

"""What logs of engines say: which error came first, and how far a start is."""

from itertools import count

import pytest

from runtime.instances.engine_log import EngineLog

# Lines of vLLM 0.32.0, shortened.
WORKER_FAILS = """
(Worker pid=9) INFO 11-26 15:33:11 [cpu_model_runner.py:68] Starting to load model /models/m...
(EngineCore pid=7) ERROR 11-26 15:33:12 [core.py:1012] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-26 15:33:12 [core.py:1012] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-26 15:33:12 [core.py:1012]   File "core.py", line 900, in run
(EngineCore pid=7) ERROR 11-26 15:33:12 [core.py:1012] ValueError: Available memory (2 GiB) is less
(EngineCore pid=7) Process EngineCore:
(EngineCore pid=7) Traceback (most recent call last):
(EngineCore pid=7)   File "process.py", line 314, in _bootstrap
(EngineCore pid=7) RuntimeError: worker died
(APIServer pid=3) Traceback (most recent call last):
(APIServer pid=3) RuntimeError: Engine core initialization failed. See root cause above.
"""
CHAINED = """
Traceback (most recent call last):
StopIteration: 0

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
importlib.metadata.PackageNotFoundError: No package metadata was found for vllm
"""
INVALID = """
Traceback (most recent call last):
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, max_model_len (99999) is greater than 8192 [type=value_error, input_value=A]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
START = """
(APIServer pid=3) WARNING 11-26 15:46:12 [vllm.py:1703] Enforce eager set, disabling torch.compile
(Worker pid=9) INFO 11-26 15:33:11 [cpu_model_runner.py:68] Starting to load model /models/m...
Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:03<00:03,  3.21s/it]
Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:06<00:00,  3.22s/it]
(Worker pid=9) INFO 11-26 15:33:15 [default_loader.py:501] Loading weights took 6.29 seconds
(Worker pid=9) INFO 11-26 15:33:21 [cpu_model_runner.py:87] Warming up model for the compilation...
(APIServer pid=3) INFO 11-26 15:48:08 [api_server.py:562] Starting vLLM server on http://127.0.0.1
"""


def read(text: str) -> EngineLog:
    log = EngineLog(clock=lambda: 0.0)
    for line in text.strip().splitlines():
        log.read(line)
    return log


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (WORKER_FAILS, "ValueError: Available memory (2 GiB) is less"),
        (
            CHAINED,
            "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm",
        ),
        (
            INVALID,
            "Value error, max_model_len (99999) is greater than 8192 [type=value_error, "
            "input_value=A]",
        ),
        ("usage: vllm [-h]\nvllm: error: unrecognized arguments: --no", None),
        (START, ""),
    ],
)
def test_the_error_is_what_the_others_came_from(text: str, error: str | None) -> None:
    assert read(text).error == (text.splitlines()[-1] if error is None else error)


def test_progress_is_of_the_weights_and_ends_with_them() -> None:
    log, seen = EngineLog(clock=lambda: 0.0), []
    for line in START.strip().splitlines():
        log.read(line)
        seen.append((log.step, log.progress))
    assert seen == [
        ("", None),
        ("reading weights", None),
        ("reading weights, file 1 of 2", 0.0),
        ("reading weights, file 2 of 2", 0.5),
        ("weights are read", None),
        ("weights are read", None),
        ("warming up", None),
        ("opening its port", None),
    ]
    log.begin()
    assert (log.step, log.progress) == ("", None)


def test_a_percentage_of_another_engine_is_progress_but_for_all_of_it() -> None:
    log = read("Loading 25%\nLoading  50% done")
    assert log.progress == 0.5
    log.read("Loading 100%")
    assert log.progress is None


def test_an_error_of_a_request_long_ago_is_not_why_an_engine_ends() -> None:
    minutes = count(step=600.0)
    log = EngineLog(clock=lambda: next(minutes))
    log.read("ValueError: of the start")
    assert log.error == "ValueError: of the start"
    log.settle()
    log.read("ValueError: of a request")
    assert log.error == ""
    log.read("torch.OutOfMemoryError: CUDA out of memory")
    log._clock = lambda: log._error_s
    assert log.error == "torch.OutOfMemoryError: CUDA out of memory"

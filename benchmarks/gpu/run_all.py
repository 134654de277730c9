"""Checks all that was written for GPUs on a card, in at most a quarter of an hour.

    PYTHONPATH=. python benchmarks/gpu/run_all.py [--vllm-python PYTHON] [--parameters FILE]
                                                  [--dry-run]

1. Tokens: of our own engine and of vLLM stages in float32 as `transformers` on the CPU; of vLLM
   stages in bfloat16 and with AWQ weights as whole vLLM, one request at a time.
2. Fast paths: FlashAttention where the card has it, no slow kernel, pinned memory, at most three
   copies between host and device in a decode step, decode graphs that are recorded.
3. Speed of a stage against whole vLLM, with decode graphs and without.
4. With two GPUs: one stage on both, by tensor parallelism.

Prints JSON with every check. The status is 0 only if all passed, 1 if one failed or was not made,
2 if there is no GPU. `--dry-run` goes through our own engine's part on the CPU with small sizes.
"""

import argparse
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import torch

from benchmarks.gpu.verdicts import verdicts
from runtime.agent.vllm_environment import find_python
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROMPTS = [[7 + 3 * place % 200 for place in range(count)] for count in (5, 18, 40)]
TOKENS = 24
LINES_OF_AN_ERROR = 12


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parameters", type=Path)
    parser.add_argument("--vllm-python", type=Path, help="of an environment with vLLM")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny sizes")
    options = parser.parse_args(argv)
    gpus = torch.cuda.device_count()
    if not options.dry_run and not gpus:
        print("no GPU is here; nothing was checked", file=sys.stderr)
        return 2
    name = "dry_run.toml" if options.dry_run else "parameters.toml"
    parameters = tomllib.loads((options.parameters or HERE / name).read_text(encoding="utf-8"))
    python = None if options.dry_run else find_python(options.vllm_python) or None
    began_s = time.monotonic()
    with TemporaryDirectory(prefix="gpu-") as folder:
        bench = Bench(Path(folder), parameters, vllm_python=python, is_dry=options.dry_run)
        found = bench.run(gpus=gpus)
    answers = verdicts(
        found,
        gpus=gpus,
        least_share=parameters["speed"]["least_share_of_vllm"],
        is_dry=options.dry_run,
    )
    report = {
        "seconds": time.monotonic() - began_s,
        "checks": [asdict(each) for each in answers],
        "found": {name: part for name, part in found.items() if part.pop("ids", None) or part},
    }
    print(json.dumps(report, indent=1))
    failed = [f"{each.check}: {each.why}" for each in answers if not each.passed]
    for line in failed:
        print(f"FAILED {line}", file=sys.stderr)
    return 1 if failed else 0


class Bench:
    """Runs the parts, each in a process of its own."""

    def __init__(
        self, folder: Path, parameters: dict[str, Any], *, vllm_python: str | None, is_dry: bool
    ) -> None:
        self._folder = folder
        self._parameters = parameters
        self._vllm_python = vllm_python
        self._is_dry = is_dry
        self._checkpoints: dict[str, Path] = {}

    def run(self, *, gpus: int) -> dict[str, dict[str, Any]]:
        """What each part found, by its name."""
        small, large = self._parameters["small"], self._parameters["large"]
        for name, sizes in (("float32", small), ("bfloat16", small), ("speed", large)):
            dtype = "float32" if name == "float32" else "bfloat16"
            self._checkpoints[name] = self._folder / name
            make_tiny_checkpoint(
                self._checkpoints[name], sizes=TinySizes(**sizes, dtype=dtype), seed=2
            )
        of_speed = [
            (count, self._parameters["speed"]["prompt_tokens"], self._parameters["speed"]["tokens"])
            for count in self._parameters["speed"]["requests"]
        ]
        # tokens side by side: each part waits for imports and weights most of its time
        with ThreadPoolExecutor(max_workers=self._parameters["parts_at_once"]) as pool:
            started = {
                name: pool.submit(self._part, *place, **how)
                for name, (place, how) in self._token_parts(gpus).items()
            }
            found = {name: part.result() for name, part in started.items()}
        if not self._is_dry:
            found |= {
                "whole vllm speed": self._part("whole vllm", "speed", speeds=of_speed),
                "vllm speed": self._part("vllm", "speed", speeds=of_speed),
                "vllm speed with graphs": self._part("vllm", "speed", speeds=of_speed, graphs=True),
            }
        return found

    def _token_parts(self, gpus: int) -> dict[str, tuple[tuple[str, str], dict[str, Any]]]:
        """By name: engine and checkpoint, and what else `_part` takes."""
        parts: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
            "transformers": (("transformers", "float32"), {}),
            "helix float32": (("helix", "float32"), {}),
        }
        if self._is_dry:
            return parts
        self._checkpoints["awq"] = self._folder / "awq"
        sys.path.insert(0, str(ROOT / "tests" / "runtime"))
        from quantized_checkpoints import quantize

        quantize(self._checkpoints["bfloat16"], self._checkpoints["awq"], "awq")
        parts |= {
            "vllm float32": (("vllm", "float32"), {}),
            "vllm float32 with graphs": (("vllm", "float32"), {"graphs": True}),
            "vllm bfloat16": (("vllm", "bfloat16"), {}),
            "whole vllm bfloat16": (("whole vllm", "bfloat16"), {}),
            "vllm awq": (("vllm", "awq"), {"dtype": "float16"}),
            "whole vllm awq": (("whole vllm", "awq"), {"dtype": "float16"}),
        }
        if gpus > 1:
            parts["vllm float32 on two GPUs"] = (("vllm", "float32"), {"ranks": 2})
        return parts

    def _part(
        self,
        engine: str,
        checkpoint: str,
        *,
        dtype: str = "",
        speeds: Sequence[tuple[int, int, int]] = (),
        graphs: bool = False,
        ranks: int = 1,
    ) -> dict[str, Any]:
        python = self._vllm_python if "vllm" in engine else sys.executable
        if python is None:
            return {"error": "vLLM is not installed: helix-agent install-engine vllm"}
        sizes = self._parameters["large" if checkpoint == "speed" else "small"]
        order = {
            "engine": engine,
            "checkpoint": str(self._checkpoints[checkpoint]),
            "dtype": dtype or ("float32" if checkpoint == "float32" else "bfloat16"),
            "layers": sizes["num_layers"],
            "context_tokens": sizes["max_position_embeddings"],
            "batch_tokens": self._parameters["batch_tokens"],
            "budget_bytes": self._parameters["budget_bytes"],
            "reserve_bytes": self._parameters["reserve_bytes"],
            "prompts": PROMPTS,
            "tokens": TOKENS,
            "speeds": speeds,
            "graphs": graphs,
            "ranks": ranks,
        }
        answer = Path(mkdtemp(dir=self._folder)) / "answer.json"
        done = subprocess.run(
            [python, str(HERE / "part.py"), str(answer)],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=self._parameters["seconds_of_a_part"],
            check=False,
        )
        if done.returncode or not answer.exists():
            return {
                "error": "; ".join(done.stderr.strip().splitlines()[-LINES_OF_AN_ERROR:])
                or "no answer"
            }
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return result


if __name__ == "__main__":
    sys.exit(main())

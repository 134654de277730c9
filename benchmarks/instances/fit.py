"""Is a latency model fitted to a short sweep right about batches that it has not seen?

    python -m benchmarks.instances.fit CHECKPOINT [--threads 1] [--clock wall]

Sweeps batch sizes and lengths with our engine on this machine (all layers of the checkpoint), fits
p1..p8 as the paper has them and with our p9 beside (see planner/latency_model.py), and measures
other batches. Prints parameters with their standard errors, and how far each form is off. Exit code
1: the median error of the form that profiles use, with p9, on held-out batches is above 10 %.
`--clock cpu` counts this process' CPU time, on one thread of a machine that does other things, too.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.instances.latency_sweep import measure_latencies
from planner.latency_fit import Timing, errors_of, fit_latency_model
from planner.latency_model import Fit
from runtime.models.config import read_config
from runtime.models.weights import load_decoder

_WANTED = 0.10
_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_BATCHES, _LENGTHS = (1, 2, 4, 8, 16), (16, 64, 128, 256)
_HELD_OUT_BATCHES, _HELD_OUT_LENGTHS = (3, 6, 12), (32, 96, 200)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=tuple(_CLOCKS), default="wall")
    arguments = parser.parse_args(argv)
    if arguments.clock == "cpu" and arguments.threads != 1:
        parser.error("--clock cpu adds up what threads do at once; give --threads 1")
    torch.set_num_threads(arguments.threads)
    config = read_config(arguments.checkpoint)
    decoder = load_decoder(
        arguments.checkpoint,
        config,
        first=0,
        end=config.num_layers,
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        progress=lambda _done, _total: None,
    )
    began_s = time.monotonic()
    seen, held_out = (
        measure_latencies(
            decoder,
            layers=config.num_layers,
            batches=batches,
            lengths=lengths,
            page_tokens=16,
            clock=_CLOCKS[arguments.clock],
        )
        for batches, lengths in ((_BATCHES, _LENGTHS), (_HELD_OUT_BATCHES, _HELD_OUT_LENGTHS))
    )
    print(f"{arguments.checkpoint.name}: both sweeps took {time.monotonic() - began_s:.0f} s")
    paper = fit_latency_model(seen.prefills, seen.decodes)
    extended = fit_latency_model(seen.prefills, seen.decodes, extended=True)
    medians = [
        _tell("prefill", paper.prefill, held_out.prefills),
        _tell("decode", extended.decode, held_out.decodes),
    ]
    _tell("decode, the paper's four terms", paper.decode, held_out.decodes)
    return 0 if max(medians) <= _WANTED else 1


def _tell(phase: str, fit: Fit, held_out: Sequence[Timing]) -> float:
    errors = errors_of(fit, held_out)
    sure = fit.standard_errors or (0.0, 0.0, 0.0, 0.0)
    terms = ", ".join(
        f"{value:.3g} ± {error:.1g}" for value, error in zip(fit.parameters, sure, strict=True)
    )
    median = statistics.median(errors)
    if fit.several_s:
        terms += f", {fit.several_s:.3g} for several"
    print(
        f"{phase}: {terms}; on its {fit.points} points off by {fit.median_error:.1%} in the median"
    )
    print(
        f"  {len(errors)} held-out batches: median {median:.1%}, worst {max(errors):.1%} "
        f"(wanted: at most {_WANTED:.0%} in the median)",
        flush=True,
    )
    return median


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures nothing, but asks for leave as the real one does; the checkpoint's name says how.

Run as `fake_profiler.py RECORD`; appends every answer it gets to the file RECORD.
"""

import sys
from pathlib import Path

from planner.domain.layer_times import LayerTimes
from runtime.protocol.profiling import FittedEquation, MeasuredPoint, NodeMeasurement
from runtime.protocol.stage_pipe import (
    Asking,
    CannotMeasure,
    Checked,
    Measured,
    ProfilingLaunch,
)

FIT = FittedEquation(
    layers=5,
    parameters=(1e-6, 1e-4, 0.0, 1e-3),
    standard_errors=(1e-7, 1e-5, 0.0, 1e-4),
    points=8,
    median_error=0.03,
    worst_error=0.1,
)
MEASUREMENT = NodeMeasurement(
    gpu="CPU",
    vram_bytes=1e9,
    max_layers=2,
    tokens_per_s=(100.0, 50.0),
    kv_capacity_token_layers=(1000.0, 500.0),
    layer_times=LayerTimes(prompt=((64.0, 0.01),), decode=((1.0, 0.001), (4.0, 0.002))),
    prompt_fit=FIT,
    decode_fit=FIT,
    points=(
        MeasuredPoint(
            phase="decode", layers=5, batch=1, tokens=32, seconds=0.005, median_s=0.006, runs=4
        ),
    ),
)


def main(record: Path) -> int:
    launch = ProfilingLaunch.model_validate_json(sys.stdin.buffer.readline())
    say = sys.stdout.buffer
    behaviour = launch.order.checkpoint
    if behaviour == "crashes":
        return 3
    if behaviour == "refuses":
        say.write(CannotMeasure(message="checkpoint x is not there; copy it").to_line())
        return 1
    if behaviour == "babbles":
        say.write(b"x" * (2 << 20) + b"\n")
        return 1
    for done in (0.0, 0.5):
        say.write(Asking(done=done).to_line())
        say.flush()
        answer = sys.stdin.buffer.readline()
        if not answer:
            return 1
        with record.open("ab") as file:
            file.write(answer)
    check = launch.order.check
    said = Checked(points=check) if check else Measured(measurement=MEASUREMENT)
    say.write(said.to_line())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

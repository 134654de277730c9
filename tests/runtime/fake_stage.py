"""A stage without a model: speaks the real pipe and does what the checkpoint's name says.

Run as `fake_stage.py RECORD`; appends "PID GENERATION" to the file RECORD when it starts.
"""

import os
import signal
import sys
import time
from pathlib import Path

from runtime.protocol.control import LinkStats, StageStats
from runtime.protocol.stage_pipe import (
    AddOrder,
    CannotAddEvent,
    FailedEvent,
    LoadingEvent,
    ReadyEvent,
    RetiredEvent,
    StageEvent,
    StageLaunch,
    StatsEvent,
)

STATS = StageStats(
    kv_pages_total=10,
    kv_pages_used=0,
    sequences=0,
    steps_total=0,
    prompt_tokens_total=0,
    decode_tokens_total=0,
    busy_s_total=0.0,
    uptime_s=0.0,
    weights_bytes=1000,
    kv_bytes=2000,
)
STATS_OF_A_LINK = STATS.model_copy(
    update={"links": {"other": LinkStats(bandwidth_bytes_per_s=5e6)}}
)


def main(record: Path) -> int:
    launch = StageLaunch.model_validate_json(sys.stdin.buffer.readline())
    behaviour = launch.assignment.checkpoint
    with record.open("a") as file:
        file.write(f"{os.getpid()} {launch.assignment.generation}\n")
    say = sys.stdout.buffer
    if behaviour == "fails":
        say.write(FailedEvent(message="checkpoint lacks tensor x; copy it again").to_line())
        return 1
    if behaviour == "crashes":
        print("Traceback", file=sys.stderr)
        print("RuntimeError: out of everything", file=sys.stderr)
        return 3
    if behaviour in ("stubborn", "lingers"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "leaves":
        signal.signal(signal.SIGTERM, lambda _number, _frame: leave(record))
    if behaviour == "tells its budget":
        budget, ranks = launch.memory_budget_bytes, launch.assignment.tensor_parallel
        print(f"{budget // ranks} bytes for each of {ranks} ranks", file=sys.stderr, flush=True)
    if behaviour == "noisy":
        say.write(b"no event at all\n" + b"x" * (2 << 20) + b"\n")
        print("y" * (2 << 20), file=sys.stderr)
        print(f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}", file=sys.stderr, flush=True)
    generation = launch.assignment.generation
    say.write(LoadingEvent(generation=generation, done_bytes=500, total_bytes=1000).to_line())
    say.flush()
    while behaviour == "loads until told" and not record.with_name("record.loads").exists():
        time.sleep(0.02)
    if behaviour == "loads forever":
        sys.stdin.buffer.read()
        return 0
    say.write(ReadyEvent(generation=generation, stats=STATS).to_line())
    say.flush()
    if behaviour == "measures a link":
        while not record.with_name("record.measured").exists():
            time.sleep(0.02)
        say.write(StatsEvent(stats=STATS_OF_A_LINK).to_line())
        say.flush()
    if behaviour == "dies when ready":
        os.kill(os.getpid(), signal.SIGKILL)
    for line in sys.stdin.buffer:  # until the agent closes it or dies
        for event in added(AddOrder.model_validate_json(line).assignment.generation, behaviour):
            say.write(event.to_line())
        say.flush()
    if behaviour == "stubborn":
        time.sleep(3600)
    return 0


def leave(record: Path) -> None:
    """As a stage does once its requests go on elsewhere; its stdin is open still."""
    time.sleep(0.1)
    record.with_name("record.left").touch()
    os._exit(0)


def added(generation: int, behaviour: str) -> list[StageEvent]:
    """What it says when another generation shall be served beside."""
    if behaviour in ("has no room", "cannot read more"):
        helps = behaviour == "has no room"
        return [CannotAddEvent(generation=generation, message=behaviour, restart_helps=helps)]
    events: list[StageEvent] = [
        LoadingEvent(generation=generation, done_bytes=100, total_bytes=1000),
        ReadyEvent(generation=generation, stats=STATS),
    ]
    if behaviour == "retires the one before":
        events.append(RetiredEvent(generation=generation - 1))
    return events


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

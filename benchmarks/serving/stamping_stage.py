"""The stage process of `token_path.py`: an emulated stage that notes when its steps end.

python benchmarks/serving/stamping_stage.py STAMPS [OPTIONS OF `python -m runtime stage`]

It sends as a stage with a model does: straight over its transport. When the process ends it writes
to STAMPS, as JSON, [request, position, seconds] for each token: the end of the step that drew it by
the machine's monotonic clock.
"""

import json
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from pathlib import Path

from runtime.engine import main as stage_program
from runtime.engine.backend import StepResult
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.sequence import Work

_stamps: list[tuple[float, list[tuple[int, int]]]] = []


class StampingRunner(EmulatedRunner):
    """Adds to `_stamps` when each step ended, and its tokens."""

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        begun = super().begin(step)
        tokens = [(work.sequence.key.request, work.chunk.end) for work in step]

        def end() -> StepResult:
            result = begun()
            _stamps.append((time.monotonic(), tokens))
            return result

        return end


def main() -> int:
    stage_program.EmulatedRunner = StampingRunner  # type: ignore[attr-defined]
    # no link is emulated; it would send by a thread of its own, which competes for Python's lock
    stage_program.EmulatedLinks = lambda sockets, _: sockets  # type: ignore[attr-defined,assignment,misc]
    try:
        return stage_program.main(sys.argv[2:])
    finally:
        flat = [(*token, ended_s) for ended_s, tokens in _stamps for token in tokens]
        Path(sys.argv[1]).write_text(json.dumps(flat))


if __name__ == "__main__":
    sys.exit(main())

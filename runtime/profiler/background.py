"""`python -m runtime profile-node`: what an agent starts to measure its node beside traffic.

Speaks `runtime.protocol.stage_pipe` on stdin and stdout: it asks before each step that it
times, and does a step again when told that traffic came meanwhile.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import BinaryIO

import torch

from planner.domain.errors import PlannerError
from planner.domain.problem import Workload
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun
from runtime.engine.choosing import (
    choose_for,
    go_on_in,
    handed_on_line,
    require_vllm,
    stdout_for_events,
)
from runtime.engine.limits import EngineLimits
from runtime.engine.opening import engine_class
from runtime.models.checkpoint import CheckpointError
from runtime.profiler.measurement import Measurement, Rehearse
from runtime.profiler.node_sweep import FoundT, fitted_equation
from runtime.profiler.rehearsal import NoAnswer, rehearse
from runtime.profiler.step_times import REST_S
from runtime.protocol.engines import Engine
from runtime.protocol.profiling import MeasuredPoint, NodeMeasurement
from runtime.protocol.stage_pipe import (
    AGAIN,
    GO,
    Asking,
    CannotMeasure,
    Checked,
    Measured,
    ProfilingLaunch,
)

logger = logging.getLogger(__name__)

_LONGEST_REST_S = 0.05  # nothing gets any colder then
_NICE = 19  # a stage of this machine always comes first
_MOST_REPEATS = 3
_PAGE_TOKENS, _MAX_BATCH_TOKENS = 16, 512  # as stages are deployed unless told otherwise


class Left(Exception):
    """The agent closed the pipe: it needs no result any more."""


class Turns:
    """Asks the agent whether a step may be timed; the measurement calls it.

    Asks the agent before each step that is timed.
    """

    def __init__(self, *, answers: BinaryIO, events: BinaryIO) -> None:
        self._answers = answers
        self._events = events
        self._may_go = False
        self.repeated = 0

    def take(self, done: float, run: Callable[[], FoundT]) -> FoundT:
        """Time a step in a quiet moment; again when it was none. Raises Left.

        What the agent says of the last step is its leave for the next one, too.
        """
        if not self._may_go:
            self._ask(done)
            self._may_go = True
        runs = run()
        for _ in range(_MOST_REPEATS):
            if self._ask(done) != AGAIN:
                break
            self.repeated += 1
            runs = run()
        return runs

    def say(self, event: Measured | Checked | CannotMeasure) -> None:
        """The last word."""
        self._events.write(event.to_line())
        self._events.flush()

    def _ask(self, done: float) -> bytes:
        self._events.write(Asking(done=done).to_line())
        self._events.flush()
        answer = self._answers.readline()
        if answer not in (GO, AGAIN):
            raise Left
        return answer


def main(argv: list[str]) -> int:
    """Measure as the first line of stdin says. Returns 0, or 1 when that was not possible."""
    parser = argparse.ArgumentParser(prog="python -m runtime profile-node", description=__doc__)
    parser.add_argument("--launch-fd", type=int, help=argparse.SUPPRESS)  # see engine/choosing.py
    parser.add_argument("--chosen-because", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    with suppress(OSError):  # not everywhere; it is a courtesy
        os.nice(_NICE)
    is_vllm = arguments.launch_fd is not None
    line = handed_on_line(arguments.launch_fd) if is_vllm else sys.stdin.buffer.readline()
    launch = ProfilingLaunch.model_validate_json(line)
    stdout = os.fdopen(stdout_for_events(), "wb") if is_vllm else sys.stdout.buffer
    turns = Turns(answers=sys.stdin.buffer, events=stdout)
    try:
        engine = Engine.VLLM if is_vllm else _chosen_engine(launch, line)
        launch = launch.model_copy(
            update={"engine": launch.engine.model_copy(update={"engine": engine})}
        )
        if launch.order.check:
            points = check_node(launch, turns, clock=time.perf_counter)
            turns.say(Checked(points=points))
        else:
            turns.say(Measured(measurement=measure_node(launch, turns, clock=time.perf_counter)))
    except (Left, BrokenPipeError):
        return 1
    except (
        PlannerError, CannotRun, CheckpointError, NoAnswer, ValueError, OSError,
        torch.OutOfMemoryError,
    ) as error:  # fmt: skip
        turns.say(CannotMeasure(message=str(error).split("\n", maxsplit=1)[0]))
        return 1
    except Exception as error:  # the last resort of a process whose stderr is not read
        logger.exception("the measurement failed")
        words = str(error).split("\n", maxsplit=1)[0]
        turns.say(CannotMeasure(message=f"{type(error).__name__}: {words}"))
        return 1
    return 0


def _chosen_engine(launch: ProfilingLaunch, line: bytes) -> Engine:
    """Goes on in vLLM's environment if the choice is vLLM. Raises CannotRun."""
    order = launch.order
    choice = choose_for(order.checkpoint, launch.engine, launch.weights, asked=order.engine)
    if choice.engine is Engine.VLLM:
        go_on_in(launch.engine.python, "profile-node", line, str(choice.reason))
    return Engine.HELIX


def rest_s(step_s: float, *, relative_speed: float) -> float:
    """Before a step, after one that took so long: a slower node does nothing meanwhile."""
    return min(REST_S + step_s * (1 / relative_speed - 1), _LONGEST_REST_S)


def check_node(
    launch: ProfilingLaunch,
    turns: Turns,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[MeasuredPoint, ...]:
    """How long the steps of the order's `check` take here. Raises what `main` catches."""
    sweep = _prepare(launch, clock=clock, sleep=sleep).sweep
    sweep.check(launch.order.check, turns.take)
    return tuple(sweep.points)


def measure_node(
    launch: ProfilingLaunch,
    turns: Turns,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None] = time.sleep,
    rehearse: Rehearse = rehearse,
) -> NodeMeasurement:
    """The profile of this machine for the order's checkpoint. Raises what `main` catches."""
    order, measurement = launch.order, _prepare(launch, clock=clock, sleep=sleep)
    measurement.run(turns.take, rehearse=rehearse)
    chosen = {} if order.kv_minimum is None else asdict(order.kv_minimum)
    minimum, budget_bytes = measurement.kv_minimum(**chosen), launch.memory_budget_bytes
    profile = measurement.profile(
        "this node",
        memory_budget_bytes=budget_bytes,
        relative_speed=launch.relative_speed,
        kv_minimum=minimum,
    )
    if profile.layer_times is None:
        why = measurement.why_no_layer(memory_budget_bytes=budget_bytes, kv_minimum=minimum)
        raise ValueError(f"{why}: raise the memory budget, or lower the model's longest request")
    stored, sweep = measurement.engine.stored, measurement.sweep
    model = sweep.latency_model()
    return NodeMeasurement(
        gpu=profile.gpu,
        vram_bytes=profile.vram_bytes,
        max_layers=profile.max_layers,
        tokens_per_s=profile.tokens_per_s,
        kv_capacity_token_layers=profile.kv_capacity_token_layers,
        layer_times=profile.layer_times,
        memory=profile.memory,
        prompt_fit=fitted_equation(model.prefill, relative_speed=launch.relative_speed),
        decode_fit=fitted_equation(model.decode, relative_speed=launch.relative_speed),
        points=tuple(sweep.points),
        repeated=turns.repeated,
        checkpoint=order.checkpoint,
        dtype=stored.weights_type,
        bytes_per_layer=float(stored.bytes_per_layer),
        engine="" if launch.engine.engine is Engine.AUTO else launch.engine.engine,
        interpolation_error=sweep.interpolation_error(),
    )


def _prepare(
    launch: ProfilingLaunch, *, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Measurement:
    """With the first layers of the checkpoint."""
    order = launch.order
    torch.set_num_threads(launch.threads)
    source = WeightSource.of(order.checkpoint, launch.weights)
    is_vllm = launch.engine.engine is Engine.VLLM
    if is_vllm:
        require_vllm()
    # graphs of decode steps would be recorded while steps are timed
    engine = engine_class(is_vllm=is_vllm)(
        source, launch.engine.model_copy(update={"decode_graphs": False})
    )
    return Measurement(
        source.folder,
        engine,
        workload=Workload(
            mean_prompt_tokens=order.mean_prompt_tokens,
            mean_output_tokens=order.mean_output_tokens,
        ),
        limits=EngineLimits(
            page_tokens=_PAGE_TOKENS,
            max_batch_tokens=_MAX_BATCH_TOKENS,
            max_context_tokens=min(order.max_context_tokens, engine.sizes.max_position_embeddings),
        ),
        memory_budget_bytes=launch.memory_budget_bytes,
        clock=clock,
        rest=lambda step_s: sleep(rest_s(step_s, relative_speed=launch.relative_speed)),
    )

"""Which requests are traced, and what helixweb gets of them: dispatcher and stages together."""

import gc
import itertools
import random
import time
from pathlib import Path

import pytest
from coordinator_doubles import (
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    routing,
    see,
    write_checkpoint,
)
from emulated_cluster import LAYERS, EmulatedCluster

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Serving
from runtime.coordinator.tokenizer import load_tokenizer
from runtime.coordinator.tracing import MOST_KEPT, MOST_PER_REPORT, PATIENCE_S, Tracer
from runtime.engine.span_record import SpanRecord
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import Entry, Flag, Kind, Message, Reason, Sampling
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.request_trace import (
    PartKind,
    RequestTrace,
    TracePart,
    TraceRow,
)
from runtime.protocol.stage_spans import pack_spans

UNIX_S = 1_800_000_000.0


def sampling(max_tokens: int) -> Sampling:
    return Sampling(temperature=0, top_p=1, top_k=0, seed=1, max_tokens=max_tokens)


class Bench:
    """A dispatcher over scripted stages, which answer a traced RELEASE only by `tell`."""

    def __init__(self, checkpoint: Path, *, traces_per_s: float = 5.0) -> None:
        self.clock = Clock()
        self.stages = ScriptedStages(lambda _: [60] * 300)
        self.tracer = Tracer(traces_per_s=traces_per_s, clock=self.clock, unix_time=lambda: UNIX_S)
        self.dispatcher, _ = make_dispatcher(self.stages, clock=self.clock, tracer=self.tracer)
        self.serving = make_serving(checkpoint)
        self.dispatcher.serve(self.serving)
        self.stages.report()

    def submit(self, *, max_tokens: int = 3) -> LiveRequest:
        return self.dispatcher.submit(
            self.serving,
            prompt_ids=list(range(10)),
            sampling=sampling(max_tokens),
            stop_strings=(),
        )

    def answer(self, *, max_tokens: int = 3) -> LiveRequest:
        request = self.submit(max_tokens=max_tokens)
        while self.stages.step():
            self.clock.now += 0.01
        return request

    def tell(self, most: int | None = None) -> None:
        """Every stage that was asked, or the first `most` of them."""
        for peer, entry in self.asked()[:most]:
            spans = SpanRecord().told(heard_s=self.clock.now, unseen_s=0.0, now_s=self.clock.now)
            self.stages.deliver(
                peer,
                Message(kind=Kind.TRACE, generation=7, entries=(entry,), payload=pack_spans(spans)),
            )

    def asked(self) -> list[tuple[str, Entry]]:
        return [
            (peer, entry)
            for peer, message in self.stages.sent
            for entry in message.entries
            if message.kind == Kind.RELEASE and Flag.TRACED in entry.flags
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(write_checkpoint(tmp_path / "checkpoint"))


def test_every_stage_of_a_pipeline_is_asked_when_its_request_ends(bench: Bench) -> None:
    request = bench.answer()
    assert request.pipeline is not None
    assert [peer for peer, _ in bench.asked()] == [s.node for s in request.pipeline.stages]
    assert bench.tracer.waiting() == ()
    bench.tell()
    (trace,) = bench.tracer.waiting()
    assert trace.request == f"{request.id:016x}"
    assert (trace.outcome, trace.prompt_tokens, trace.output_tokens) == ("length", 10, 3)
    assert [stage.node for stage in trace.pipeline] == [s.node for s in request.pipeline.stages]
    assert trace.arrived_at == pytest.approx(UNIX_S - (bench.clock.now - request.arrived_at))
    assert len(trace.token_times_s) == 3


def test_a_trace_is_sent_until_helixweb_has_it(bench: Bench) -> None:
    for _ in range(3):
        bench.answer()
        bench.tell()
        bench.stages.sent.clear()
    told = bench.tracer.waiting()
    assert len(told) == 3
    bench.tracer.delivered(told[:2])
    assert bench.tracer.waiting() == told[2:]


def test_no_more_are_traced_than_allowed_and_later_ones_again(bench: Bench) -> None:
    for _ in range(40):
        bench.answer(max_tokens=1)
    bench.tell()
    few = len(bench.tracer.waiting())
    assert few == 20  # a burst of four seconds
    assert len(bench.tracer.waiting()) <= MOST_PER_REPORT
    bench.tracer.delivered(bench.tracer.waiting())
    bench.stages.sent.clear()
    bench.clock.now += 1.0
    bench.stages.report()
    for _ in range(40):
        bench.answer(max_tokens=1)
    bench.tell()
    assert len(bench.tracer.waiting()) in range(5, 8)


def test_a_rate_of_zero_traces_nothing(tmp_path: Path) -> None:
    bench = Bench(write_checkpoint(tmp_path / "checkpoint"), traces_per_s=0)
    bench.answer()
    assert bench.asked() == []
    assert bench.tracer.waiting() == ()


def test_a_stage_that_does_not_answer_is_not_waited_for_forever(bench: Bench) -> None:
    bench.answer()
    bench.clock.now += PATIENCE_S + 0.1
    bench.dispatcher.expire()
    (trace,) = bench.tracer.waiting()
    assert trace.parts[-1].kind == PartKind.UNMEASURED
    assert sum(part.seconds for part in trace.parts) == pytest.approx(trace.e2e_s)


def test_what_a_stage_reported_before_its_restart_is_not_drawn(bench: Bench) -> None:
    """Its clock is not known any more, and another stage never answers."""
    bench.answer()
    bench.tell(1)
    bench.tracer.forget_clock(bench.asked()[0][0])
    bench.clock.now += PATIENCE_S + 0.1
    bench.dispatcher.expire()
    (trace,) = bench.tracer.waiting()
    assert trace.parts[-1].kind == PartKind.UNMEASURED
    assert sum(part.seconds for part in trace.parts) == pytest.approx(trace.e2e_s)


def test_a_cancelled_request_says_so(bench: Bench) -> None:
    request = bench.submit()
    bench.stages.step()
    bench.clock.now += 2.0
    bench.dispatcher.end(request)
    bench.tell()
    (trace,) = bench.tracer.waiting()
    assert trace.outcome == "cancelled"
    assert trace.e2e_s == pytest.approx(2.0)


def test_a_refused_request_has_the_code_and_its_attempts(bench: Bench) -> None:
    request = bench.submit()
    bench.stages.refuse((request.id, 0), Reason.PREEMPTED)
    bench.stages.refuse((request.id, 1), Reason.STAGE_ERROR)
    bench.tell()
    bench.clock.now += PATIENCE_S + 0.1
    bench.dispatcher.expire()
    (trace,) = bench.tracer.waiting()
    assert trace.outcome == "stage_error"
    assert trace.attempts == 2


def test_a_malformed_answer_is_dropped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.answer()
    peer, entry = bench.asked()[0]
    bench.stages.deliver(
        peer, Message(kind=Kind.TRACE, generation=7, entries=(entry,), payload=b"short")
    )
    assert "TRACE carries 5 bytes" in caplog.text


def test_traces_that_helixweb_does_not_take_are_kept_within_bounds(bench: Bench) -> None:
    for _ in range(MOST_KEPT + 50):
        bench.clock.now += 1.0
        bench.stages.report()
        bench.answer(max_tokens=1)
        bench.tell()
        bench.stages.sent.clear()
    kept = []
    while waiting := bench.tracer.waiting():
        kept += waiting
        bench.tracer.delivered(waiting)
    assert len(kept) == MOST_KEPT
    assert kept[-1].request == f"{MOST_KEPT + 50:016x}"


def trace_objects() -> int:
    gc.collect()
    kinds = {RequestTrace, TracePart, TraceRow}
    return sum(type(thing) in kinds for thing in gc.get_objects())


def test_traces_that_wait_are_bytes_and_no_objects(bench: Bench) -> None:
    before = trace_objects()
    for _ in range(30):
        bench.clock.now += 1.0
        bench.stages.report()
        bench.answer(max_tokens=8)
        bench.tell()
        bench.stages.sent.clear()
    assert trace_objects() == before
    assert len(bench.tracer.waiting()) == MOST_PER_REPORT


def traces_of_emulated_stages(tmp_path: Path) -> list[RequestTrace]:
    """Twelve requests at once through three real stage loops, on this machine's clock."""
    layers = {"a": (0, 3), "b": (3, 5), "c": (5, LAYERS)}
    cluster = EmulatedCluster(layers, options=EngineOptions())
    ids = itertools.count(1)
    tracer = Tracer(traces_per_s=20, clock=time.monotonic, unix_time=time.time)
    dispatcher = Dispatcher(
        transport=cluster.coordinator,
        stats=RequestStats(window_s=10, clock=time.monotonic),
        clock=time.monotonic,
        new_request_id=lambda: next(ids),
        request_timeout_s=60,
        tracer=tracer,
    )
    checkpoint = tmp_path / "checkpoint"
    make_tiny_checkpoint(checkpoint, sizes=TinySizes(vocab_size=300), seed=1)
    serving = Serving(
        plan=make_serving(checkpoint).plan.model_copy(
            update={
                "generation": 1,
                "num_layers": LAYERS,
                "placement": Placement(
                    layers={
                        name: LayerRange(first=first, end=end)
                        for name, (first, end) in layers.items()
                    }
                ),
                "routing_weights": {
                    SOURCE: {"a": 1.0},
                    "a": {"b": 1.0},
                    "b": {"c": 1.0},
                    "c": {SINK: 1.0},
                },
            }
        ),
        tokenizer=load_tokenizer(checkpoint),
        routing=routing(),
    )
    dispatcher.serve(serving)
    see(dispatcher, *layers)

    def turn() -> None:
        for stage in cluster.stages.values():
            turns = iter((False, True))
            stage.run(lambda turns=turns: next(turns))  # type: ignore[misc]
        for received in cluster.coordinator.receive(timeout_s=0):
            dispatcher.receive(received)

    while serving.missing_nodes():
        turn()
    rng = random.Random(1)
    for _ in range(12):
        dispatcher.submit(
            serving,
            prompt_ids=[rng.randrange(200) for _ in range(rng.randrange(5, 60))],
            sampling=sampling(rng.randrange(1, 20)),
            stop_strings=(),
        )
    while dispatcher.requests_running or dispatcher.requests_waiting:
        turn()
    for _ in range(3):
        turn()
    return list(tracer.waiting())


def test_the_parts_of_real_stages_add_up_to_the_end_to_end_time(tmp_path: Path) -> None:
    traces = traces_of_emulated_stages(tmp_path)
    assert len(traces) == 12
    for trace in traces:
        total_s = sum(part.seconds for part in trace.parts)
        assert total_s == pytest.approx(trace.e2e_s, rel=0.02)
        assert not any(part.kind == PartKind.UNMEASURED for part in trace.parts)
        computed = {part.node for part in trace.parts if part.kind == PartKind.COMPUTE}
        assert computed == {"a", "b", "c"}
        assert len(trace.token_times_s) == trace.output_tokens

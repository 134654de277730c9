"""Is an injected bottleneck named within ten seconds, on the demo under load?

    python -m benchmarks.web.bottlenecks [--node NAME] [--time-scale X | --real] [--folder DIR]

Two injections, one after the other, each from a calm state under load:

* a node at half speed. Nodes are emulated, their steps as long as the demo's profiles say times
  X; this one's take twice as long from now on, and the clock starts when its stage is up again.
  With --real they are the demo's own, and its stage is stopped (SIGSTOP) half of the time, 20 ms
  each: then a node of full speed, as the others sleep for a part of each step, stopped or not;
* a KV cache nearly full: so many long requests at once that they do not fit.

Printed is how long it took until `/bottleneck/`, which the Monitor shows, named kind and node, and
what was named in every second before. Exit code 1: one of them took longer.
"""

import argparse
import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from benchmarks.web.chatting import Chatters
from benchmarks.web.demo_site import DemoSite, running_demo

WITHIN_S = 10.0
CALM_S = 15.0
GIVE_UP_S = 40.0
STOPPED_S = RUNNING_S = 0.02


def main() -> int:
    arguments = _arguments()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="helixweb-bottlenecks-"))
    print(f"data and logs: {folder}")
    time_scale = None if arguments.real else arguments.time_scale
    with running_demo(folder, time_scale=time_scale) as demo:
        took = [
            _half_speed(demo, node, real=arguments.real)
            for node in arguments.node or ["tower" if arguments.real else "desktop"]
        ]
        took.append(_full_cache(demo))
    return 0 if all(seconds is not None and seconds <= WITHIN_S for seconds in took) else 1


def _half_speed(demo: DemoSite, node: str, *, real: bool) -> float | None:
    streams = 48 if real else 24  # the model's own answers are shorter than its profile's
    with _chatters(demo, streams=streams, max_tokens=48, prompt_words=8) as chatters:
        _watch(demo, f"calm, {streams} streams", CALM_S, until=lambda finding: False)
        with half_the_time(demo.stage(node)) if real else half_as_fast(demo, node):
            seconds = _watch(
                demo,
                f"{node} at half speed",
                GIVE_UP_S,
                until=lambda finding: (finding["limit"], finding["subject"]) == ("slow node", node),
            )
    print(f"  {chatters.answers} answers, {chatters.tokens} tokens, {chatters.refused} refused")
    return seconds


def _full_cache(demo: DemoSite) -> float | None:
    _watch(demo, "idle", CALM_S / 3, until=lambda finding: False)
    with _chatters(demo, streams=48, max_tokens=400, prompt_words=60) as chatters:
        seconds = _watch(
            demo,
            "48 long requests at once",
            GIVE_UP_S,
            until=lambda finding: finding["limit"] == "KV cache" and _is_fullest(demo, finding),
        )
        print(f"  {demo.site.get('metrics/latest/', cluster=demo.cluster)['nodes']}")
    print(f"  {chatters.answers} answers, {chatters.tokens} tokens, {chatters.refused} refused")
    return seconds


def _is_fullest(demo: DemoSite, finding: dict[str, str]) -> bool:
    """The node that is named has as little room left as any, by pages or by promises."""
    nodes = demo.site.get("metrics/latest/", cluster=demo.cluster)["nodes"]
    fullness = {
        name: max(
            node["kv_promised_ratio"] or 0.0,
            (node["kv_used_pages"] or 0) / (node["kv_total_pages"] or 1),
        )
        for name, node in nodes.items()
    }
    return fullness[finding["subject"]] >= max(fullness.values()) - 0.1


def _watch(
    demo: DemoSite, what: str, give_up_s: float, *, until: Callable[[dict[str, str]], bool]
) -> float | None:
    """Seconds until then; None: not in time. A line for each other finding on the way."""
    print(what, flush=True)
    began, said = time.monotonic(), ""
    while (passed_s := time.monotonic() - began) < give_up_s:
        finding = demo.site.get(f"clusters/{demo.cluster}/bottleneck/")
        if finding["headline"] != said:
            said = finding["headline"]
            print(f"  {passed_s:5.1f} s  {said} {finding['evidence']}", flush=True)
        if until(finding):
            print(f"  named after {passed_s:.1f} s (wanted: within {WITHIN_S:.0f} s)", flush=True)
            return passed_s
        time.sleep(0.25)
    return None


@contextlib.contextmanager
def half_the_time(process: psutil.Process) -> Iterator[None]:
    """While inside, `process` runs half of the time."""
    over = threading.Event()

    def alternate() -> None:
        while not over.is_set():
            process.send_signal(signal.SIGSTOP)
            over.wait(STOPPED_S)
            process.send_signal(signal.SIGCONT)
            over.wait(RUNNING_S)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def half_as_fast(demo: DemoSite, node: str) -> Iterator[None]:
    """While inside, the emulated node takes twice as long for everything."""
    demo.slow_down(node, 2.0)
    try:
        yield
    finally:
        demo.slow_down(node, 0.5)


def _chatters(demo: DemoSite, *, streams: int, max_tokens: int, prompt_words: int) -> Chatters:
    return Chatters(
        demo.coordinator_url,
        key=demo.key,
        model=demo.model,
        streams=streams,
        max_tokens=max_tokens,
        prompt_words=prompt_words,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.bottlenecks")
    parser.add_argument("--node", action="append", help="to slow down (default: desktop)")
    parser.add_argument("--time-scale", type=float, default=5.0)
    parser.add_argument("--real", action="store_true", help="CPU nodes that run the model")
    parser.add_argument("--folder", type=Path, help="for data and logs (default: a temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m helixweb.demo [--check]`: what `make demo` runs."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helixweb.demo import check
from helixweb.demo.local_cluster import Checkpoint
from helixweb.demo.processes import DemoFailed, Processes, Running, alone_in, free_port
from helixweb.demo.scenario import MAX_TOKENS, QUESTION, Places, Scenario, Timings
from runtime.protocol.ports import is_free

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m helixweb.demo", description=__doc__)
    add_options(parser)
    return run(parser.parse_args())


def run(arguments: argparse.Namespace) -> int:
    """What `main` and `helixweb demo` do."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        signal.signal(number, _interrupt)
    try:
        if arguments.check:
            return _check(keep=arguments.keep)
        return _demo(port=arguments.port)
    except DemoFailed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0 if not arguments.check else 130


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=_port,
        default=8000,
        help="of the web site (default 8000); the OpenAI API gets the port 100 above",
    )
    parser.add_argument("--check", action="store_true", help="headless: verify, print, exit")
    parser.add_argument("--keep", action="store_true", help="with --check: keep data and logs")


def _port(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 65435:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port for the demo; give 1 to 65435")


def _demo(*, port: int) -> int:
    data_dir = ROOT / "var" / "demo"
    with alone_in(data_dir):
        return _serve(port=port, data_dir=data_dir)


def _serve(*, port: int, data_dir: Path) -> int:
    """Until Ctrl-C; what ends by itself once the demo is up is reported, and the rest goes on."""
    for wanted in (port, port + 100):
        if not is_free("127.0.0.1", wanted):
            raise DemoFailed(f"port {wanted} is taken; choose another: make demo PORT={port + 10}")
    places = Places(
        data_dir=data_dir,
        models_dir=ROOT / "var" / "models",
        web_port=port,
        coordinator_port=port + 100,
    )
    print(f"HelixWeb demo; data and logs in {data_dir}")
    with _processes(places) as processes:
        scenario = Scenario(places, processes, Timings())
        link, key, answer, plan, _ = _main_job(scenario, reference=None)
        _print_answer(answer, plan)
        print(
            f"\n  Web site        {places.web_url}\n"
            f"  Log in (once)   {link}\n"
            f"  OpenAI API      {places.coordinator_url}/v1\n"
            f"  API key         {key}\n"
            f"  Agents          {numbers_of(scenario.nodes)}\n\n"
            "Ctrl-C stops everything.",
            flush=True,
        )
        while processes.names:
            for ended in processes.take_ended():
                print(
                    f"\n{ended.name} ended with exit code {ended.process.returncode}, see "
                    f"{ended.log}; the rest goes on.\nTo start it again, in another terminal:\n"
                    f"  {ended.again}",
                    flush=True,
                )
            time.sleep(0.5)
        raise DemoFailed("nothing is running any more")


def _check(*, keep: bool) -> int:
    data_dir = Path(tempfile.mkdtemp(prefix="helixweb-demo-"))
    places = Places(
        data_dir=data_dir,
        models_dir=ROOT / "var" / "models",
        web_port=free_port(),
        coordinator_port=free_port(),
    )
    timings = Timings()
    begin = time.monotonic()
    passed = False
    try:
        with _processes(places) as processes:
            scenario = Scenario(places, processes, timings)
            _, _, answer, plan, reference = _main_job(
                scenario, reference=data_dir / "reference.log"
            )
            with timings.step("Comparing with transformers"):
                check.same_tokens(answer, reference)
            pipelines = check.uneven_and_shared(plan["document"])
            _print_answer(answer, plan)
            print(f"  {pipelines}")
            print(
                f"  {len(reference)} token ids equal transformers' generate (fp32, greedy)\n\n"
                "Seconds per step"
            )
        for title, seconds in timings.steps:
            print(f"  {seconds:6.1f}  {title}")
        print(f"  {time.monotonic() - begin:6.1f}  in all")
        passed = True
        return 0
    finally:
        if passed and not keep:
            shutil.rmtree(data_dir)
        else:
            print(f"Data and logs are kept in {data_dir}", file=sys.stderr)


def _main_job(
    scenario: Scenario, *, reference: Path | None
) -> tuple[str, str, dict[str, Any], dict[str, Any], list[int]]:
    """Login link, API key, chat answer, plan, reference token ids (empty without a reference)."""
    checkpoint: Checkpoint = scenario.make_checkpoint()
    scenario.start_web()
    link = scenario.login_link()
    site, key = scenario.connect()
    oracle = None
    try:
        cluster_id = scenario.ensure_cluster(site, checkpoint)
        scenario.start_nodes(site, cluster_id)
        plan = scenario.ensure_plan(site, cluster_id)
        if reference is not None:
            oracle = check.Reference(
                checkpoint=checkpoint.path,
                questions=[QUESTION],
                max_tokens=MAX_TOKENS,
                log=reference,
                cwd=ROOT,
            )
        scenario.ensure_deployed(site, cluster_id, plan["id"])
        with scenario.timings.step("Asking one question"):
            answer = scenario.ask(key)
        expected = oracle.token_ids()[0] if oracle is not None else []
    finally:
        site.close()
        if oracle is not None:
            oracle.stop()
    return link, key, answer, plan, expected


def numbers_of(agents: Mapping[str, Running]) -> str:
    """Each with its process: who wants to see a node lost ends one of them."""
    return ", ".join(f"{name} {agent.process.pid}" for name, agent in agents.items())


def _print_answer(answer: dict[str, Any], plan: dict[str, Any]) -> None:
    text = answer["choices"][0]["message"]["content"]
    stages = answer["helix"]["pipeline"]
    print(f"\n  Question        {QUESTION}\n  Answer          {text!r}")
    path = " -> ".join(f"{stage['node']} [{stage['first']}, {stage['end']})" for stage in stages)
    print(f"  Computed by     {path}")
    held = plan["document"]["placement"]
    print(
        "  Layers held     "
        + ", ".join(f"{node} [{first}, {end})" for node, (first, end) in sorted(held.items()))
    )


def _processes(places: Places) -> Processes:
    return Processes(log_dir=places.data_dir / "logs", cwd=ROOT, env=places.env)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

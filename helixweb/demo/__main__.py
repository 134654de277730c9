"""`python -m helixweb.demo [--tiny] [--check]`: what `make demo` runs."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helixweb.client import ClientError
from helixweb.command_line.numbers import number_that
from helixweb.demo import check
from helixweb.demo.local_cluster import CHAT, TINY, DemoModel
from helixweb.demo.processes import DemoFailed, Processes, Running, alone_in, free_port
from helixweb.demo.scenario import MAX_TOKENS, Places, Scenario, Timings
from runtime.protocol.ports import is_free

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m helixweb.demo", description=__doc__)
    add_options(parser)
    return run(parser.parse_args())


def run(arguments: argparse.Namespace) -> int:
    """What `main` and `helixweb demo` do."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        signal.signal(number, signal.default_int_handler)
    model = TINY if arguments.tiny else CHAT
    try:
        if arguments.check:
            return _check(model, keep=arguments.keep)
        return _demo(model, port=arguments.port)
    except (ClientError, DemoFailed) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0 if not arguments.check else 130


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=number_that(lambda port: 0 < port <= 65435, "1 to 65435", int),
        default=8000,
        help="of the web site (default 8000); the OpenAI API gets the port 100 above",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a toy model made here: no download, no real answers"
    )
    parser.add_argument("--check", action="store_true", help="headless: verify, print, exit")
    parser.add_argument("--keep", action="store_true", help="with --check: keep data and logs")


@contextmanager
def _scenario(
    model: DemoModel, data_dir: Path, *, web_port: int, coordinator_port: int, exact: bool = False
) -> Iterator[Scenario]:
    """Within, what it starts runs."""
    places = Places(
        data_dir=data_dir,
        models_dir=ROOT / "var" / "models",
        web_port=web_port,
        coordinator_port=coordinator_port,
    )
    with Processes(log_dir=data_dir / "logs", cwd=ROOT, env=places.env) as processes:
        yield Scenario(places, processes, Timings(), model=model, exact=exact)


def _demo(model: DemoModel, *, port: int) -> int:
    """Until Ctrl-C; what ends by itself once the demo is up is reported, and the rest goes on."""
    data_dir = ROOT / "var" / ("demo-tiny" if model is TINY else "demo")
    with alone_in(data_dir):
        for wanted in (port, port + 100):
            if not is_free("127.0.0.1", wanted):
                raise DemoFailed(
                    f"port {wanted} is taken; choose another: make demo PORT={port + 10}"
                )
        print(f"HelixWeb demo; data and logs in {data_dir}")
        with _scenario(model, data_dir, web_port=port, coordinator_port=port + 100) as scenario:
            _serve(scenario)
    raise DemoFailed("nothing is running any more")


def _serve(scenario: Scenario) -> None:
    """Until nothing runs any more."""
    processes, places = scenario.processes, scenario.places
    link, key, answers, plan, _ = _main_job(scenario, reference=None)
    _print_answers(scenario.model, answers, plan)
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
                f"{ended.child.log}; the rest goes on.\n"
                f"To start it again, in another terminal:\n  {ended.again}",
                flush=True,
            )
        time.sleep(0.5)  # until Ctrl-C


def _check(model: DemoModel, *, keep: bool) -> int:
    data_dir = Path(tempfile.mkdtemp(prefix="helixweb-demo-"))
    ports = {"web_port": free_port(), "coordinator_port": free_port()}
    begin = time.monotonic()
    passed = False
    try:
        with _scenario(model, data_dir, **ports, exact=True) as scenario:
            reference = data_dir / "reference.log"
            _, _, answers, plan, references = _main_job(scenario, reference=reference)
            with scenario.timings.step("Comparing with transformers"):
                for told in zip(model.questions, answers, references, strict=True):
                    check.same_tokens(*told)
            pipelines = check.uneven_and_shared(plan["document"], nodes=len(model.nodes))
            _print_answers(model, answers, plan)
            print(
                f"  {pipelines}\n"
                f"  {sum(map(len, references))} token ids equal transformers' generate "
                "(fp32, greedy)\n\nSeconds per step"
            )
        for title, seconds in scenario.timings.steps:
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
) -> tuple[str, str, list[dict[str, Any]], dict[str, Any], list[list[int]]]:
    """Login link, API key, chat answers, plan, reference token ids.

    Without `reference`, a log file for it, there is one answer and no token ids.
    """
    questions = list(scenario.model.questions)
    checkpoint = scenario.make_checkpoint()
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
                checkpoint=checkpoint,
                questions=questions,
                max_tokens=MAX_TOKENS,
                log=reference,
                cwd=ROOT,
            )
        scenario.ensure_deployed(site, cluster_id, plan["id"])
        with scenario.timings.step("Asking one question"):
            answers = [scenario.ask(key, questions[0])]
        expected = []
        if oracle is not None:
            with scenario.timings.step("Asking more, and waiting for transformers"):
                answers += [scenario.ask(key, question) for question in questions[1:]]
                expected = oracle.token_ids()
    finally:
        site.close()
        if oracle is not None:
            oracle.stop()
    return link, key, answers, plan, expected


def numbers_of(agents: Mapping[str, Running]) -> str:
    """Each with its process: who wants to see a node lost ends one of them."""
    return ", ".join(f"{name} {agent.process.pid}" for name, agent in agents.items())


def _print_answers(model: DemoModel, answers: list[dict[str, Any]], plan: dict[str, Any]) -> None:
    for question, answer in zip(model.questions, answers, strict=False):
        text = answer["choices"][0]["message"]["content"]
        stages = answer["helix"]["pipeline"]
        print(f"\n  Question        {question}\n  Answer          {text!r}")
        path = (f"{stage['node']} [{stage['first']}, {stage['end']})" for stage in stages)
        print(f"  Computed by     {' -> '.join(path)}")
    held = plan["document"]["placement"]
    print(
        "  Layers held     "
        + ", ".join(f"{node} [{first}, {end})" for node, (first, end) in sorted(held.items()))
    )


if __name__ == "__main__":
    sys.exit(main())

"""`python -m helixweb.demo [--tiny] [--check]`: what `make demo` runs."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
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
    """Run the demo, for `main` and `helixweb demo`."""
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
    """Run until Ctrl-C. A process that ends once the demo is up is reported; others continue."""
    data_dir = ROOT / "var" / ("demo-tiny" if model is TINY else "demo")
    with alone_in(data_dir):
        for wanted in (port, port + 100):
            if not is_free("127.0.0.1", wanted):
                raise DemoFailed(
                    f"port {wanted} is taken; choose another: make demo PORT={port + 10}"
                )
        print(f"HelixWeb demo; data and logs in {data_dir}")
        with _scenario(model, data_dir, web_port=port, coordinator_port=port + 100) as scenario:
            job = _Job(scenario)
            job.print_answers([job.ask(model.questions[0])])
            print(
                f"\n  Web site        {scenario.places.web_url}\n"
                f"  Log in (once)   {job.link}\n"
                f"  OpenAI API      {scenario.places.coordinator_url}/v1\n"
                f"  API key         {job.key}\n"
                f"  Agents          {numbers_of(scenario.nodes)}\n\n"
                "Ctrl-C stops everything.",
                flush=True,
            )
            _watch(scenario.processes)
    raise DemoFailed("nothing is running any more")


def _watch(processes: Processes) -> None:
    """Wait until no process runs."""
    while processes.children:
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
    with ExitStack() as kept:
        kept.callback(print, f"Data and logs are kept in {data_dir}", file=sys.stderr)
        with _scenario(model, data_dir, **ports, exact=True) as scenario:
            job, step = _Job(scenario), scenario.timings.step
            with step("Asking all questions"):
                answers = [job.ask(question) for question in model.questions]
            with step("Comparing with transformers"):
                references = check.reference_ids(
                    scenario.processes, job.checkpoint, model.questions, max_tokens=MAX_TOKENS
                )
                for compared in zip(model.questions, answers, references, strict=True):
                    check.same_tokens(*compared)
            pipelines = check.uneven_and_shared(job.plan["document"], nodes=len(model.nodes))
            job.print_answers(answers)
            print(
                f"  {pipelines}\n"
                f"  {sum(map(len, references))} token ids equal transformers' generate "
                "(fp32, greedy)\n\nSeconds per step"
            )
        for title, seconds in scenario.timings.steps:
            print(f"  {seconds:6.1f}  {title}")
        print(f"  {time.monotonic() - begin:6.1f}  in all")
        if not keep:
            kept.pop_all()
            shutil.rmtree(data_dir)
    return 0


class _Job:
    """The site, nodes, plan and deployment of a scenario, started in their order."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.checkpoint = scenario.make_checkpoint()
        scenario.start_web()
        self.link = scenario.login_link()
        site, self.key = scenario.connect()
        with closing(site):
            cluster_id = scenario.ensure_cluster(site, self.checkpoint)
            scenario.start_nodes(site, cluster_id)
            self.plan = scenario.ensure_plan(site, cluster_id)
            scenario.ensure_deployed(site, cluster_id, self.plan["id"])

    def ask(self, question: str) -> dict[str, Any]:
        return self.scenario.ask(self.key, question)

    def print_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        for question, answer in zip(self.scenario.model.questions, answers, strict=False):
            text = answer["choices"][0]["message"]["content"]
            stages = answer["helix"]["pipeline"]
            print(f"\n  Question        {question}\n  Answer          {text!r}")
            path = (f"{stage['node']} [{stage['first']}, {stage['end']})" for stage in stages)
            print(f"  Computed by     {' -> '.join(path)}")
        held = sorted(self.plan["document"]["placement"].items())
        print("  Layers held     " + ", ".join(f"{node} [{a}, {b})" for node, (a, b) in held))


def numbers_of(agents: Mapping[str, Running]) -> str:
    """Process ids by name, so that users can end one to see a node lost."""
    return ", ".join(f"{name} {agent.process.pid}" for name, agent in agents.items())


if __name__ == "__main__":
    sys.exit(main())

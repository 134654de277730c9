"""Commands around a cluster at work: plans, deployments, live views, chats."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone

from helixweb.alerting.models import Alert, AlertRule
from helixweb.client.wire import Event
from helixweb.command_line import exit_codes
from helixweb.command_line.commands.bench import percentiles, run_closed_loop
from helixweb.command_line.commands.events import line
from helixweb.command_line.output import width
from helixweb.deployment.models import Deployment, Drain
from helixweb.inventory.models import Cluster, Coordinator, Node
from helixweb.operations.tasks import beat_pulse
from helixweb.planning.models import Plan, PlanRun
from runtime.checkpoints.engine_fit import offers_of
from runtime.protocol.engines import EngineSettings
from runtime.protocol.phases import Phase
from tests.helixweb.chat_double import ChatDouble
from tests.helixweb.looking import contains
from tests.helixweb.process_doubles import HARDWARE, FakeCluster, served
from tests.helixweb.searching import searched
from tests.helixweb.site_in_process import Shell

pytestmark = pytest.mark.usefixtures("time_stands_still")
THERE = ("--endpoint", "http://there", "--model", "m")


@pytest.fixture
def serving(joined: FakeCluster) -> Deployment:
    return served(joined)


def solve(seconds: float) -> None:
    """What a worker does while the command waits."""
    run = PlanRun.unscoped.get(status=PlanRun.Status.QUEUED)
    searched(run)


def test_a_plan_is_computed_and_its_progress_told(shell: Shell, cluster: Cluster) -> None:
    shell.sleep = solve
    assert shell("plan", "compute", "--objective", "flow", "--time-limit", 1) == 0
    plan = Plan.unscoped.get()
    assert re.search(rf"plan +{plan.pk}\n", shell.out)
    assert "tower" in shell.out
    assert "tokens/s, bound" in shell.err
    assert shell("plan", "list") == 0
    assert shell("plan", "list", "--runs", "--cluster", "tiny", "--json") == 0
    assert [one["plan"] for one in shell.json()] == [plan.pk]
    assert shell("plan", "show", plan.pk, "--json") == 0
    assert shell.json()["document"]["placement"]


def test_a_plan_is_computed_without_some_nodes(shell: Shell, cluster: Cluster) -> None:
    assert shell("plan", "compute", "--without", "mini", "--no-wait") == 0, shell.err
    assert PlanRun.unscoped.get().options["rules"]["excluded_nodes"] == ["mini"]


def test_on_a_terminal_progress_is_one_line(shell: Shell, cluster: Cluster) -> None:
    shell.sleep = solve
    assert shell("plan", "compute", "--objective", "flow", terminal=True) == 0
    contains(shell.out, "\rrun ", "succeeded  best")
    assert shell.err == ""


def test_ctrl_c_ends_a_search_and_keeps_the_best_plan(shell: Shell, cluster: Cluster) -> None:
    def interrupt(seconds: float) -> None:
        if not PlanRun.unscoped.get().cancel_requested:
            raise KeyboardInterrupt
        solve(seconds)

    shell.sleep = interrupt
    assert shell("plan", "compute") == exit_codes.FAILED
    contains(shell.err, "ending the search", "cancelled")


def test_a_search_that_fails_is_told_by_the_exit_code(
    shell: Shell, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(seconds: float) -> None:
        PlanRun.unscoped.update(status="failed", error="no path to mini")

    shell.sleep = fail
    assert shell("plan", "compute") == exit_codes.FAILED
    assert "no path to mini" in shell.err
    assert shell("plan", "compute", "--placer", "magic") == exit_codes.USAGE
    assert "magic" in capsys.readouterr().err


def test_a_search_may_be_left_alone_and_cancelled(shell: Shell, cluster: Cluster) -> None:
    assert shell("plan", "compute", "--no-wait", "--json") == 0
    number = shell.json()["id"]
    assert shell("plan", "cancel", number) == 0
    assert shell("plan", "cancel", number) == exit_codes.CONFLICT


def test_a_plan_is_compared_with_another(shell: Shell, plan: Plan) -> None:
    other = Plan.unscoped.defer(None).get(pk=plan.pk)
    other.pk, other.run = None, None
    other.save()
    assert shell("plan", "compare", plan.pk, other.pk) == 0
    assert "PLAN" in shell.out
    assert shell("plan", "compare", plan.pk) == exit_codes.USAGE


def test_a_plan_is_deployed_paused_resumed_and_let_go(shell: Shell, joined: FakeCluster) -> None:
    steps: list[Callable[[], object]] = [
        lambda: joined.fetch_some("tower"),
        lambda: joined.bring_up(Deployment.unscoped.latest("pk")),
    ]
    shell.sleep = lambda seconds: steps.pop(0)() and None
    assert shell("deploy", joined.plan.pk, "--max-queued-requests", 3) == 0
    contains(shell.err, "deploying: ", "; fetched 38% of 4 GB")
    assert re.search(r"status +ready", shell.out)
    deployment = Deployment.unscoped.get()
    assert deployment.max_queued_requests == 3
    assert shell("pause") == 0
    assert shell("resume", deployment.pk) == 0
    assert shell("resume", deployment.pk) in (0, exit_codes.CONFLICT)
    assert shell("rollback") == exit_codes.CONFLICT
    assert shell("undeploy", "--json") == 0
    assert shell.json()["status"] == "stopping"
    assert shell("undeploy") == exit_codes.NOT_FOUND


def test_engines_of_a_model_and_of_nodes_are_named(shell: Shell, joined: FakeCluster) -> None:
    for agent in joined.agents.values():
        engines = [one.model_dump(mode="json") for one in offers_of(EngineSettings(python="/py"))]
        agent.identity["hardware"] = {**HARDWARE, "engines": engines, "engine": "auto"}
        agent.http.put("/api/v1/agent/identity", agent.identity)
    first, second = list(joined.used_agents)[:2]
    assert shell("model", "edit", joined.model.name, "--engine", "helix") == 0
    assert shell("deploy", joined.plan.pk, "--no-wait", "--node-engine", f"{first}=vllm") == 0
    told = {name: agent.desired().assignment for name, agent in joined.used_agents.items()}
    assert (told[first].engine, told[second].engine) == ("vllm", "helix")  # type: ignore[union-attr]
    assert shell("deploy", joined.plan.pk, "--node-engine", "vllm") == exit_codes.USAGE
    twice = ("--node-engine", f"{first}=vllm", "--node-engine", f"{first}=helix")
    assert shell("deploy", joined.plan.pk, *twice) == exit_codes.USAGE
    assert f"--node-engine names '{first}' twice; keep one" in shell.err


def test_a_deployment_that_fails_is_told_by_exit_code(shell: Shell, joined: FakeCluster) -> None:
    def fail(seconds: float) -> None:
        for agent in joined.used_agents.values():
            agent.beat(Phase.FAILED, generation=1, message="no such checkpoint")

    shell.sleep = fail
    assert shell("deploy", joined.plan.pk) == exit_codes.FAILED
    assert "no such checkpoint" in shell.err + shell.out
    assert shell("status") == 0
    assert re.search(r"failed +deployment \d+: .*no such checkpoint", shell.out)


def test_a_node_is_drained_and_taken_in_again(
    shell: Shell, joined: FakeCluster, serving: Deployment
) -> None:
    name = next(iter(joined.used_agents))
    assert shell("drain") == 0
    assert "no node is drained" in shell.out
    assert shell("drain", name) == 0
    assert Drain.unscoped.get().node.name == name
    assert shell("drain") == 0
    assert name in shell.out
    assert shell("drain", name, "--end") == 0
    assert shell("drain", name, "--end") == exit_codes.NOT_FOUND


def test_status_tells_what_runs_and_what_is_lost(
    shell: Shell, joined: FakeCluster, serving: Deployment
) -> None:
    joined.coordinator.report(output_tokens_per_s=12.5)
    joined.silence("mini")
    assert shell("status") == 0
    assert re.search(r"nodes +3: 2 online, 1 lost", shell.out)
    assert re.search(r"lost +mini", shell.out)
    assert "12.5 tokens/s" in shell.out
    assert "fetches" not in shell.out
    joined.fetch_some("tower")
    assert shell("status") == 0
    told_of = r"fetches +tower: 1.5 GB of 4 GB \(peer laptop 1 GB, hub 500 MB\), 130.0 s left"
    assert re.search(told_of, shell.out)
    assert shell("status", "tiny", "--json") == 0
    (told,) = shell.json()
    assert set(told) == {
        "cluster", "nodes", "coordinators", "deployment", "failed_deployment", "alerts", "metrics",
        "bottleneck", "links", "reach", "site",
    }  # fmt: skip


def test_status_names_the_parts_of_the_site_that_do_not_work(
    shell: Shell, serving: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_pulse()
    assert shell("status") == 0
    assert "SITE" not in shell.out
    monkeypatch.setattr("helixweb.operations.health.LEAST_FREE_BYTES", 1 << 62)
    assert shell("status") == 0
    assert re.search(r"SITE +disk full; `helixweb doctor` on its machine says", shell.out)


def test_status_and_top_tell_of_alerts(shell: Shell, serving: Deployment) -> None:
    rule = AlertRule.objects.create(
        cluster=serving.cluster, name="lost", kind="node_lost", threshold=1, clears_at=1
    )
    Alert.objects.create(
        rule=rule, cluster=serving.cluster, subject="mini", state="firing", severity="critical",
        since=timezone.now(), fired_at=timezone.now(), said={"text": "Node mini is lost."},
    )  # fmt: skip
    assert shell("status") == 0
    assert "critical: Node mini is lost." in shell.out
    assert shell("top", "--once") == 0
    assert "critical: Node mini is lost." in shell.out


def test_status_of_a_site_without_anything(shell: Shell) -> None:
    assert shell("status") == 0
    assert "no cluster yet" in shell.out
    assert shell("cluster", "add", "bare") == 0
    assert shell("status") == 0
    assert re.search(r"serves +nothing", shell.out)


def test_top_fits_a_small_terminal_and_puts_lost_nodes_first(
    shell: Shell, joined: FakeCluster, serving: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    Node.objects.bulk_create(
        Node(cluster=joined.cluster, name=f"spare-{number:03}") for number in range(40)
    )
    joined.coordinator.report()
    joined.silence("mini")
    assert shell("top", "--once", terminal=True) == 0
    lines = shell.out.rstrip("\n").split("\n")
    assert len(lines) <= 24
    assert max(map(width, lines)) <= 80
    assert "43: 2 online, 1 lost" in shell.out
    rows = [one for one in lines if " declared " in one or " lost " in one or " online " in one]
    assert rows[0].startswith("mini")
    assert "more nodes" in shell.out


def test_top_draws_on_a_screen_of_its_own_until_ctrl_c(shell: Shell, serving: Deployment) -> None:
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    shell.sleep = stop
    assert shell("top", terminal=True) == 0
    assert shell.out.startswith("\x1b[?1049h")
    assert shell.out.endswith("\x1b[?1049l")


def test_top_without_a_terminal_steers_none(shell: Shell, serving: Deployment) -> None:
    pictures = iter([None])

    def twice(seconds: float) -> None:
        if next(pictures, "over") == "over":
            raise KeyboardInterrupt

    shell.sleep = twice
    assert shell("top") == exit_codes.INTERRUPTED
    assert shell.out.count("3: 3 online") == 2
    assert "\x1b" not in shell.out
    assert shell("top", "--once", "--json") == 0
    assert json.loads(shell.out)["deployment"]["id"] == serving.pk


def test_an_event_is_one_line_for_people() -> None:
    event = Event(id="7", type="node", data={"topic": "cluster:1", "text": "Node a\x1b was added."})
    assert line(event) == "7  cluster:1  node  Node a\ufffd was added."
    bare = Event(id="8", type="plan", data={"topic": "plan-run:2", "status": "succeeded"})
    assert line(bare) == "8  plan-run:2  plan  status=succeeded"


def test_events_are_followed_until_there_were_enough(tmp_path: Path) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.path == "/api/v1/events/":
            return httpx.Response(200, text="".join(f"id: {n}\ndata: {{}}\n\n" for n in (4, 5, 6)))
        return httpx.Response(200, json={"count": 1, "results": [{"id": 3, "name": "tiny"}]})

    shell = Shell("hlx_a.b", home=str(tmp_path), way=httpx.MockTransport(answer))
    assert shell("events", "--since", "3", "--count", 2, "--json") == 0
    assert [json.loads(one)["id"] for one in shell.out.splitlines()] == ["4", "5"]
    assert asked[-1].url.params["topics"] == "cluster:3"
    assert asked[-1].headers["Last-Event-ID"] == "3"


@pytest.fixture
def coordinator(joined: FakeCluster, serving: Deployment) -> Iterator[ChatDouble]:
    """Where the cluster's coordinator says it is, somebody answers chats."""
    with ChatDouble("Hel", "lo\x1b[2J") as double:
        Coordinator.unscoped.update(http_url=double.url)
        yield double


def test_a_question_is_answered_word_by_word(shell: Shell, coordinator: ChatDouble) -> None:
    assert shell("chat", "how", "are", "you?", "--max-tokens", 5, "--system", "Be brief.") == 0
    assert shell.out == "Hello\ufffd[2J\n"
    contains(shell.err, "tower > laptop", "TTFT")
    (body,) = coordinator.bodies
    assert [one["content"] for one in body["messages"]] == ["Be brief.", "how are you?"]
    assert body["max_tokens"] == 5
    assert coordinator.keys == [shell.environ["HELIXWEB_KEY"]]


def test_a_conversation_remembers_what_was_said(shell: Shell, coordinator: ChatDouble) -> None:
    assert shell("chat", typed="one\ntwo\n\n", terminal=True) == 0
    assert [len(body["messages"]) for body in coordinator.bodies] == [1, 3]
    assert shell("chat", "--json", typed="from a pipe") == 0
    assert shell.json()["completion_tokens"] == 2


def test_what_an_endpoint_refuses_is_told_as_it_said(shell: Shell, coordinator: ChatDouble) -> None:
    coordinator.refusal = (429, {"error": {"message": "queue is full"}}, {"Retry-After": "3"})
    assert shell("chat", "hi") == exit_codes.REFUSED
    contains(shell.err, "queue is full", "come again in 3 s")
    assert shell("chat", "hi", "--endpoint", "http://127.0.0.1:1", "--model", "m") == (
        exit_codes.UNREACHABLE
    )
    assert shell("chat", "hi", "--endpoint", "http://127.0.0.1:1") == exit_codes.NOT_FOUND


def test_bench_keeps_so_many_streams_busy(shell: Shell, coordinator: ChatDouble) -> None:
    assert shell("bench", "--streams", 3, "--requests", 7, "--max-tokens", 2, "--json") == 0
    told = shell.json()
    assert (told["requests"], told["failed"], told["output_tokens"]) == (7, 0, 14)
    assert told["ttft_s"]["p50"] <= told["ttft_s"]["p95"] <= told["e2e_s"]["p99"]
    prompts = {body["messages"][0]["content"] for body in coordinator.bodies}
    assert len(prompts) == 7
    assert shell("bench", "--requests", 1) == 0
    assert "TTFT" in shell.out


def test_bench_counts_what_fails(shell: Shell, coordinator: ChatDouble, tmp_path: Path) -> None:
    coordinator.refusal = (503, {"error": {"message": "not serving"}}, {})
    prompts = tmp_path / "prompts"
    prompts.write_text("a\n\nb\n")
    assert shell("bench", "--requests", 2, "--prompts", prompts) == exit_codes.FAILED
    assert "not serving" in shell.err
    assert "2 failed" in shell.out
    prompts.write_text("\n")
    assert shell("bench", "--prompts", prompts) == exit_codes.USAGE


def test_bench_tells_what_it_measured_until_ctrl_c(
    shell: Shell, coordinator: ChatDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*what: Any, **how: Any) -> None:
        run_closed_loop(*what, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr("helixweb.command_line.commands.bench.run_closed_loop", interrupted)
    assert shell("bench", "--requests", 3, "--json") == exit_codes.INTERRUPTED
    assert shell.json()["requests"] == 3
    assert "interrupted" in shell.err


@pytest.mark.parametrize("endpoint", ["foo", "http://[::1", "ftp://here"])
def test_an_endpoint_that_is_no_address_is_a_malformed_value(endpoint: str, tmp_path: Path) -> None:
    shell = Shell("hlx_a.b", home=str(tmp_path))
    for command in ("chat", "bench"):
        assert shell(command, "--endpoint", endpoint, "--model", "m", typed="x") == exit_codes.USAGE
        assert f"{endpoint!r} is no address" in shell.err


@pytest.mark.parametrize(
    "chunk",
    [b"{", b"[]", b'{"choices": [null]}', b'{"choices": 5}', b'{"choices": [], "usage": 1}'],
)
def test_what_is_no_chunk_is_told(chunk: bytes, tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"data: " + chunk + b"\n\n")

    shell = Shell("", home=str(tmp_path), way=httpx.MockTransport(answer))
    assert shell("chat", *THERE, "hi") == exit_codes.FAILED
    assert "which is no chunk" in shell.err


def test_a_page_instead_of_an_answer_is_no_openai_api(tmp_path: Path) -> None:
    page = httpx.MockTransport(lambda request: httpx.Response(404, text="<!doctype html>"))
    shell = Shell("", home=str(tmp_path), way=page)
    assert shell("chat", *THERE, "hi") == exit_codes.UNREACHABLE
    assert "not as an OpenAI API does" in shell.err
    assert "doctype" not in shell.err


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    shell = Shell("", home=str(tmp_path))
    assert shell("chat", *THERE, typed="a\udcff") == exit_codes.USAGE
    assert "no text in UTF-8" in shell.err
    prompts = tmp_path / "prompts"
    prompts.write_bytes(b"one\n\xff\xfe")
    assert shell("bench", *THERE, "--prompts", prompts) == exit_codes.USAGE
    assert f"{prompts}, line 2" in shell.err


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([3, 1, 2]) == {"p50": 2, "p95": 3, "p99": 3}
    assert percentiles(list(range(1, 101))) == {"p50": 50, "p95": 95, "p99": 99}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}

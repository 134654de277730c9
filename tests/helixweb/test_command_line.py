"""`helixweb` in a shell: the inventory, which server it asks, exit codes, errors with remedies."""

import io
import json
import re
import stat
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command

from helixweb.command_line import exit_codes, waiting
from helixweb.command_line.command import completer_of
from helixweb.command_line.main import main
from helixweb.command_line.output import bandwidth, cut, duration, one_line, table, width
from helixweb.command_line.registry import COMMANDS
from helixweb.command_line.surroundings import Surroundings
from helixweb.inventory.models import Cluster, JoinToken, LanguageModel, Node
from tests.helixweb.looking import contains
from tests.helixweb.site_in_process import URL, InProcess, Shell, new_key


def test_every_command_tells_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == exit_codes.OK
        assert f"usage: helixweb {name}" in capsys.readouterr().out


def test_nodes_are_declared_changed_listed_and_removed(shell: Shell, cluster: Cluster) -> None:
    assert shell("node", "add", "shed", "--region", "away", "--price", "1.5", "--json") == 0
    assert shell.json()["price_per_hour"] == 1.5
    assert shell("node", "edit", "shed", "--profile", "small", "--tag", "loud") == 0
    row = Node.unscoped.get(name="shed")
    assert (row.profile_name, [tag.name for tag in row.tags.all()]) == ("small", ["loud"])
    assert shell("node", "list") == 0
    assert re.search(r"shed +tiny +declared +away +small +- +- +loud", shell.out)
    assert shell("node", "list", "--state", "online", "--json") == 0
    assert shell.json() == []
    assert shell("node", "show", Node.unscoped.get(name="mini").pk, "--json") == 0
    assert shell.json()["name"] == "mini"
    assert shell("node", "remove", "shed", "mini") == 0
    assert set(Node.unscoped.values_list("name", flat=True)) == {"tower", "laptop"}


def test_a_name_in_two_clusters_needs_the_cluster(shell: Shell, cluster: Cluster) -> None:
    assert shell("cluster", "add", "second") == 0
    assert shell("node", "add", "mini", "--cluster", "second") == 0
    assert shell("node", "show", "mini") == exit_codes.USAGE
    assert "2 clusters have a node 'mini'" in shell.err
    assert shell("node", "show", "mini", "--cluster", "second", "--json") == 0
    assert shell("node", "add", "other") == exit_codes.USAGE
    assert re.search("with --cluster; there are: (second, tiny|tiny, second)", shell.err)


def test_a_join_command_is_made(shell: Shell, cluster: Cluster) -> None:
    assert shell("node", "token") == 0
    assert JoinToken.unscoped.get().role == "node"
    assert f"helix-agent join {URL} --token hlxj_" in shell.out


def test_clusters_and_models_are_made_changed_and_removed(shell: Shell) -> None:
    assert shell("cluster", "add", "lab", "--replanning", "never", "--prompt-tokens", "100") == 0
    assert shell("cluster", "edit", "lab", "--output-tokens", "9", "--name", "shop") == 0
    row = Cluster.unscoped.get()
    assert (row.name, row.replanning, row.mean_output_tokens) == ("shop", "never", 9)
    assert shell("cluster", "list", "--json") == 0
    assert [one["name"] for one in shell.json()] == ["shop"]
    assert shell("cluster", "remove", "shop") == 0
    model = ("--layers", 4, "--bytes-per-layer", 1e6, "--activation-bytes", 256)
    assert shell("model", "add", "tiny", *model, "--checkpoint", "/m") == 0
    assert shell("model", "edit", "tiny", "--heads", 8) == 0
    assert shell("model", "show", "tiny", "--json") == 0
    assert (shell.json()["num_heads"], shell.json()["checkpoint"]) == (8, "/m")
    assert shell("model", "list") == 0
    assert shell("model", "remove", "tiny") == 0
    assert not LanguageModel.objects.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("node", "show", "attic"), exit_codes.NOT_FOUND, "no node 'attic'"),
        (("cluster", "show", "attic"), exit_codes.NOT_FOUND, "there are: tiny"),
        (("model", "show", "gpt"), exit_codes.NOT_FOUND, "there are: tiny-llama"),
        (("plan", "show", 999), exit_codes.NOT_FOUND, "nothing at /api/v1/plans/999/"),
        (("node", "add", "source"), exit_codes.USAGE, "reserved"),
        (("node", "edit", "mini"), exit_codes.USAGE, "say what to change"),
        (("node", "edit", "mini", "--profile", "H100"), exit_codes.USAGE, "H100"),
        (("pause",), exit_codes.NOT_FOUND, "nothing is deployed"),
        (("deploy", 999), exit_codes.NOT_FOUND, "999"),
        (("import", "/nowhere/x.yaml"), exit_codes.FAILED, "/nowhere/x.yaml: No such file"),
    ],
)
def test_what_cannot_be_is_refused_with_its_own_exit_code(
    shell: Shell, cluster: Cluster, words: tuple[object, ...], code: int, said: str
) -> None:
    assert shell(*words) == code
    assert said in shell.err
    assert shell.out == ""
    assert shell.err.startswith("helixweb: ")


@pytest.mark.parametrize(
    "words",
    [(), ("nod",), ("node",), ("node", "list", "--frob"), ("deploy", "x"), ("deploy", "-1"),
     ("node", "list", "--timeout", "0"), ("node", "add", "x", "--price", "nan"),
     ("plan", "replan", "1", "--budget-gb", "1e300")],
)  # fmt: skip
def test_a_command_that_is_none_is_told_by_exit_code_2(
    shell: Shell, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell(*words) == exit_codes.USAGE
    assert "usage: helixweb" in capsys.readouterr().err


def test_several_bad_fields_are_told_one_by_one(shell: Shell, cluster: Cluster) -> None:
    assert shell("node", "add", "n" * 65, "--region", "r" * 65) == exit_codes.USAGE
    contains(shell.err, "2 values are refused", "name: ", "region: ")


def test_with_json_an_error_is_one_json_object_on_stderr(shell: Shell, cluster: Cluster) -> None:
    assert shell("node", "add", "source", "--json") == exit_codes.USAGE
    error = json.loads(shell.err)["error"]
    assert (error["status"], error["exit_code"]) == (400, exit_codes.USAGE)
    assert error["errors"][0]["field"] == "name"
    assert shell("node", "show", "attic", "--json") == exit_codes.NOT_FOUND
    assert "attic" in json.loads(shell.err)["error"]["detail"]


def test_who_may_not_is_told_so(user: Any, cluster: Cluster, tmp_path: Path) -> None:
    reader = Shell(new_key(user, "read"), home=str(tmp_path))
    assert reader("node", "list") == 0
    assert reader("node", "remove", "mini") == exit_codes.REFUSED
    stranger = Shell("hlx_no.such", home=str(tmp_path))
    assert stranger("node", "list") == exit_codes.REFUSED
    assert "run `helixweb login`" in stranger.err


def test_a_server_that_is_away_is_told_with_the_remedy(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    shell = Shell("hlx_a.b", home=str(tmp_path), way=httpx.MockTransport(refuse))
    assert shell("status") == exit_codes.UNREACHABLE
    assert "HELIXWEB_URL says where the site is" in shell.err
    assert shell("status", "--url", "nonsense") == exit_codes.USAGE


def test_an_edit_of_what_changed_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PATCH":
            assert request.headers["If-Match"] == '"old"'
            return httpx.Response(412, json={"detail": "changed since it was read"})
        row = {"id": 1, "name": "tiny", "created_at": ""}
        if request.url.path.endswith("/1/"):
            return httpx.Response(200, json=row, headers={"ETag": '"old"'})
        return httpx.Response(200, json={"count": 1, "results": [row]})

    shell = Shell("hlx_a.b", home=str(tmp_path), way=httpx.MockTransport(answer))
    assert shell("cluster", "edit", "tiny", "--name", "x") == exit_codes.CONFLICT
    assert "changed since it was read" in shell.err


def test_login_keeps_the_key_for_one_server(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    key = shell.environ.pop("HELIXWEB_KEY")
    assert shell("login", "--url", URL, typed=f"{key}\n") == 0
    kept = tmp_path / "helixweb" / "config.toml"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert key not in shell.out + shell.err
    del shell.environ["HELIXWEB_URL"]
    assert shell("node", "list") == 0
    assert shell("node", "list", "--url", "http://testserver:81") == exit_codes.REFUSED
    kept.chmod(0o644)
    assert shell("node", "list") == 0
    assert "chmod 600" in shell.err
    assert shell("login", "--forget") == 0
    assert not kept.exists()


def test_login_keeps_no_key_that_is_unknown(shell: Shell, tmp_path: Path) -> None:
    del shell.environ["HELIXWEB_KEY"]
    assert shell("login", typed="hlx_no.such\n") == exit_codes.REFUSED
    assert shell("login", typed="\n") == exit_codes.USAGE
    assert not (tmp_path / "helixweb" / "config.toml").exists()


def test_a_key_may_come_from_a_file(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(shell.environ.pop("HELIXWEB_KEY") + "\n")
    shell.environ["HELIXWEB_KEY_FILE"] = str(file)
    assert shell("node", "list") == 0
    shell.environ["HELIXWEB_KEY_FILE"] = str(tmp_path / "none")
    assert shell("node", "list") == exit_codes.FAILED
    assert "none: No such file" in shell.err
    file.write_bytes(b"\xff")
    shell.environ["HELIXWEB_KEY_FILE"] = str(file)
    assert shell("node", "list") == exit_codes.USAGE
    assert f"{file}, line 1: this is no text in UTF-8" in shell.err


def test_a_model_that_no_node_has_numbers_of_is_told_with_what_to_do(shell: Shell) -> None:
    Cluster.objects.create(name="new")
    assert shell("plan", "compute") == exit_codes.NOT_FOUND
    assert "there is no model yet; add one with `helixweb model add PATH`" in shell.err


def test_a_person_sees_what_is_waited_for_no_script_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_AFTER_S", 0.001)
    for is_terminal in (True, False):
        err = _Drawn(is_terminal=is_terminal)
        with waiting.waiting_for("comparing", Surroundings(err=err)):
            assert err.wait() if is_terminal else True
        assert ("comparing ... 0 s" in err.getvalue()) is is_terminal
        assert err.getvalue().endswith("\r") is is_terminal


class _Drawn(io.StringIO):
    """A terminal or not; `wait` until something was drawn."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal, self._drawn = is_terminal, threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def flush(self) -> None:
        self._drawn.set()

    def wait(self) -> bool:
        return self._drawn.wait(30)


@pytest.mark.parametrize("text", ["url = 3\n", "frob = 'x'\n", "url = \n", b"\xff\xfe"])
def test_unreadable_settings_are_named(shell: Shell, text: str | bytes, tmp_path: Path) -> None:
    kept = tmp_path / "helixweb" / "config.toml"
    kept.parent.mkdir()
    kept.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert shell("node", "list") == exit_codes.USAGE
    assert str(kept) in shell.err


def test_manage_py_reaches_the_same_commands(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("helixweb", "completion", "bash")
    assert "helixweb" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        call_command("helixweb", "nod")
    assert ended.value.code == exit_codes.USAGE


def test_names_of_the_site_complete(shell: Shell, cluster: Cluster) -> None:
    cluster_names, model_names, node_names = map(completer_of, ("clusters", "models", "nodes"))
    asked = Namespace(surroundings=Surroundings(environ=shell.environ, transport=InProcess()))
    assert node_names("t", asked) == ["tower"]
    assert cluster_names("", asked) == ["tiny"]
    assert model_names("x", asked) == []
    shell.environ["HELIXWEB_KEY"] = "hlx_no.such"
    assert node_names("t", asked) == []


def test_what_a_name_contains_does_not_steer_the_terminal() -> None:
    assert one_line("a\x1b[2Jb\nc") == "a\ufffd[2Jb c"


def test_tables_are_aligned_by_what_a_terminal_shows() -> None:
    text = table(("NAME", "N"), [("节点", 7), ("ab", 1234)])
    assert text.split("\n") == ["NAME     N", "节点     7", "ab    1234"]
    assert cut("节点一", 5) == "节点…"
    assert width(cut("节点一", 4)) <= 4


def test_quantities_have_their_units() -> None:
    assert (duration(0.0123), duration(75.04), duration(None)) == ("12 ms", "75.0 s", "-")
    assert (bandwidth(1.25e9), bandwidth(12.5e6), bandwidth(1)) == (
        "10 Gbit/s", "100 Mbit/s", "8 bit/s",
    )  # fmt: skip


pytestmark = pytest.mark.usefixtures("time_stands_still")


def test_a_file_is_compared_and_brought_in(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    assert shell("export", "-o", file) == 0
    assert shell("import", file) == 0
    assert "the same as the file" in shell.out
    assert shell("import", file, "--check") == 0
    text = file.read_text()
    file.write_text(re.sub(r"(name: mini\s+region: )away", r"\1home", text))
    assert shell("import", file, "--check") == exit_codes.DIFFERS
    assert "  ~ node mini: region away -> home" in shell.out
    assert shell("import", file) == exit_codes.USAGE
    assert "--yes" in shell.err
    assert shell("import", file, typed="n\n", terminal=True) == exit_codes.FAILED
    assert Node.unscoped.get(name="mini").region == "away"
    assert shell("import", file, typed="y\n", terminal=True) == 0
    assert Node.unscoped.get(name="mini").region == "home"
    assert shell("import", "-", "--yes", "--json", typed=text) == 0
    assert shell.json()["applied"] is True
    assert shell("import", file, "--yes") == 0


def test_pruning_shows_what_goes(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "links.csv"
    file.write_text("source,target,bandwidth_bytes_per_s,latency_s\ntower,laptop,5,0\n")
    words = ("import", file, "--kind", "links", "--cluster", "tiny", "--prune")
    assert shell(*words, "--yes") == 0
    assert "  + link tower -> laptop: bandwidth_bytes_per_s 5.0" in shell.out
    contains(shell.out, "  - link tower -> mini", "links: 1 add, 1 remove")
    assert shell("export", "--format", "csv", "--kind", "links", "--cluster", "tiny") == 0
    assert "tiny,tower,laptop,5.0,0.0" in shell.out


@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        ("a.yaml", b"format: helixweb.inventory/1\nclusters:\n- nmae: x\n", (), "line 3"),
        ("a.csv", b"name\nx\n", (), "--kind"),
        ("a.csv", b"name\nx\n", ("--kind", "nodes"), "say which cluster"),
        ("a.csv", "name\nµ\n".encode("latin-1"), ("--kind", "nodes", "--cluster", "tiny"), "0xb5"),
        ("a.yaml", b"", ("--kind", "nodes"), "for CSV"),
        ("a.json", b"{", (), "JSON"),
        ("a.json", b'{"format": "helixweb.inventory/1", "cluster": 1}', (), "cluster"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_line(
    shell: Shell,
    cluster: Cluster,
    tmp_path: Path,
    name: str,
    content: bytes,
    options: tuple[str, ...],
    said: str,
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert shell("import", file, "--yes", *options) == exit_codes.USAGE
    assert said in shell.err

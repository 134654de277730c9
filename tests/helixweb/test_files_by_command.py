"""Inventories as files by commands: compared, brought in, pruned, refused."""

import re
from pathlib import Path

import pytest

from helixweb.command_line import exit_codes
from helixweb.inventory.models import Cluster, Node
from tests.helixweb.looking import contains
from tests.helixweb.site_in_process import Shell

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


def test_a_file_that_is_not_there_is_named(shell: Shell, cluster: Cluster) -> None:
    assert shell("import", "/nowhere/x.yaml") == exit_codes.FAILED
    assert "/nowhere/x.yaml: No such file" in shell.err

"""From a login link to an answer of a quantised model, by the site's pages in Chromium.

Four unequal nodes on this machine compute the stages with vLLM, whose Python HELIX_TEST_VLLM_PYTHON
names.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from selenium import webdriver

from helixweb.charts.chart import bytes_text
from helixweb.demo.local_cluster import LocalNode
from helixweb.demo.processes import Processes, free_port
from helixweb.demo.site import wait_until
from runtime.checkpoints.safetensors_header import read_entries
from runtime.checkpoints.tensor_holders import SINGLE_FILE
from tests.e2e.person import Person
from tests.e2e.smollm import quantized_smollm
from tests.e2e.walk_by_clicks import LAST, walk_to_an_answer
from tests.installed import require
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
VLLM_PYTHON = os.environ.get("HELIX_TEST_VLLM_PYTHON", "")
KIND = "compressed-tensors-w8a8-int8"
# The model fits only as it is stored, and only on all four.
NODES = tuple(
    LocalNode(name=name, memory_bytes=megabytes * 1_000_000, relative_speed=speed)
    for name, megabytes, speed in (
        ("tower", 200, 1.0), ("desktop", 160, 0.6), ("laptop", 100, 0.4), ("mini", 80, 0.3),
    )
)  # fmt: skip

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.long]


class LocalMachines:
    """`helixweb up`, and one `helix-agent join` for each of `members` with these `options`."""

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        checkpoint: Path,
        members: Sequence[LocalNode],
        options: Sequence[str],
    ) -> None:
        self.nodes = [member.name for member in members]
        self.checkpoint = str(checkpoint)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.data = folder / "site"
        self._processes = processes
        self._folder = folder
        self._members = members
        self._options = options

    def start_site(self) -> str:
        command = [
            sys.executable, "-m", "helixweb.command_line", "up", "--json",
            "--data", str(self.data), "--port", self.url.rpartition(":")[2],
            "--coordinator-port", str(free_port()),
        ]  # fmt: skip
        log = self._processes.start("up", command).child.log
        assert log is not None
        wait_until(
            "the site is up",
            lambda: '"login_link"' in log.read_text(),
            timeout_s=PATIENCE_S,
            check_alive=self._processes.check_alive,
        )
        (line,) = [line for line in log.read_text().splitlines() if '"login_link"' in line]
        link: str = json.loads(line)["login_link"]
        return link

    def join(self, token: str) -> None:
        for member in self._members:
            command = [
                sys.executable, "-m", "runtime.agent.join", "join", self.url, "--token", token,
                "--name", member.name, "--data-dir", str(self._folder / member.name),
                "--memory", str(member.memory_bytes),
                "--relative-speed", str(member.relative_speed), "--shutdown-grace", "1",
                *self._options,
            ]  # fmt: skip
            self._processes.start(member.name, command)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[LocalMachines]:
    remedy = "`helix-agent install-engine vllm`, then name its Python in HELIX_TEST_VLLM_PYTHON"
    require("vllm", found=bool(VLLM_PYTHON), remedy=remedy)
    checkpoint = quantized_smollm(tmp_path / "smollm-w8a8", "w8a8")
    env = {"OMP_NUM_THREADS": "1", "DATABASE_URL": "", "REDIS_URL": "", "HOME": str(tmp_path)}
    with Processes(log_dir=tmp_path / "logs", cwd=ROOT, env=env) as processes:
        options = ("--engine-python", VLLM_PYTHON)
        yield LocalMachines(processes, tmp_path, checkpoint, NODES, options)


@pytest.fixture
def person(machines: LocalMachines, browser: webdriver.Chrome) -> Person:
    return Person(browser, machines.url)


def test_a_quantised_model_answers_on_four_nodes(machines: LocalMachines, person: Person) -> None:
    looks = {
        "read": lambda: the_sizes_are_those_of_the_stored_weights(person, machines.checkpoint),
        "created": lambda: person.see("main", KIND),
        "fits": lambda: person.see("#fit .badge.good", "fits"),
    }
    walk = walk_to_an_answer(machines, person, lambda moment: looks.get(moment, lambda: None)())
    print(f"{person.clicks} clicks, {walk.elapsed_s:.0f} s")
    assert "Tokyo" in person.look(LAST, "said")
    every_node_was_measured(person, stored_layer_bytes(Path(machines.checkpoint)))
    every_node_computes_layers_by_vllm(person)
    assert person.script_errors() == []


def the_sizes_are_those_of_the_stored_weights(person: Person, checkpoint: str) -> None:
    """On the form of a new model, which the node that reads the checkpoint fills in."""
    layer_bytes = stored_layer_bytes(Path(checkpoint))
    facts = person.text("#model-facts")
    assert KIND in facts
    assert f" {bytes_text(layer_bytes)} " in facts
    assert "fits" in facts
    assert person.find("[name=bytes_per_layer]").get_attribute("value") == str(layer_bytes)


def stored_layer_bytes(checkpoint: Path) -> int:
    """Of the largest layer, by the headers of the files."""
    sums: Counter[str] = Counter()
    for name, entry in read_entries(checkpoint / SINGLE_FILE).items():
        if name.startswith("model.layers."):
            sums[name.split(".")[2]] += entry.nbytes
    assert len(sums) == 30
    return max(sums.values())


def every_node_was_measured(person: Person, layer_bytes: int) -> None:
    person.open("/profiles/")
    rows = table(person, "main table:has(meter)")
    assert {row[0].split()[0] for row in rows} == {node.name for node in NODES}
    for _, _, _, _, weights, _, source, times, *_ in rows:
        assert f" {bytes_text(layer_bytes)} = " in weights
        assert source.startswith("measured")
        assert times == "measured"


def every_node_computes_layers_by_vllm(person: Person) -> None:
    person.open("/deployments/1/")
    rows = table(person, "#deployment-nodes")
    assert {row[0] for row in rows} == {node.name for node in NODES}
    for name, layers, *_ in rows:
        person.open("/deployments/1/")
        person.click(name, within="#deployment-nodes")
        person.see("#stage", layers)
        engine = re.search(r"vLLM .*", person.text("#stage"))
        assert engine is not None, name
        print(f"{name} {layers}: {engine[0]}")
        assert re.search(r"on cpu in bfloat16 \(.*Int8.*Kernel", engine[0])


def table(person: Person, css: str) -> list[list[str]]:
    """The texts of its cells."""
    person.find(f"{css} tbody tr")
    rows: list[list[str]] = person.look(
        "return [...document.querySelectorAll(`${arguments[0]} tbody tr`)]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))",
        css,
    )
    return rows

"""The commands of docs/three-machines.md, each on its machine: three network namespaces, and a
fourth behind NAT."""

import json
import re
import resource
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.e2e import blank_database
from tests.e2e.three_machines import ADDRESSES, PAGE, Machines, machine_of
from tests.shaped_links.network import (
    Namespaces,
    behind_nat,
    cabled,
    require_nat,
    require_shaping,
)

# The tests' model, of which neither machine can hold all layers, in place of the page's.
REPLACED = {
    "layers            30": "layers            12",
    "--memory 300M": "--memory 26M",
    "What is the capital of Japan?": "What is HelixWeb?",
    "The capital of Japan is Tokyo.": "HelixWeb serves a large language model",
}
# With the machine d, which is behind the router e.
WITH_D = {
    "--machines 2": "--machines 3",
    "plan compute --time-limit 5": "plan compute --time-limit 5 --without d",
}
OUTER_OF_D, INNER_OF_D = "10.99.0.9", IPv4Interface("192.168.7.2/24")
CHECKPOINT = "/models/smollm2"
CUT = (
    "{source} cannot reach {target} at {place}:7000: allow this TCP port through the firewall; if "
    "{target} is behind NAT, forward a port to it and restart it with --advertise"
)
B_TO_C = CUT.format(source="b", target="c", place=ADDRESSES["c"])
NO_WEIGHTS = "b cannot fetch weights from c at 10.99.0.3:7001"
TO_D = [
    CUT.format(source=source, target="d", place=INNER_OF_D.ip)
    for source in ("coordinator", "b", "c")
]
COMPUTE, DEPLOY = "helixweb plan compute", "helixweb deploy 1"
THROUGH_D = {
    "cluster": 1,
    "model": 1,
    "options": {"time_limit_s": 1, "rules": {"pinned": {"d": {"first": 4, "end": 8}}}},
}


def firewall(network: Namespaces, action: str, port: int = 7000) -> None:
    """`add` or `del` one on c that lets no answer of that port through to b."""
    rule = f"rule {action} to {ADDRESSES['b']} ipproto tcp sport {port} blackhole"
    subprocess.run(["ip", "-n", network.names["c"], *rule.split()], check=True)


@pytest.fixture(params=["all reach all", "d behind NAT"])
def network(request: pytest.FixtureRequest) -> Iterator[Namespaces]:
    """Machines a, b and c, and d if the parameter says so."""
    require_shaping()
    if request.param == "all reach all":
        with cabled(ADDRESSES) as found:
            yield found
        return
    require_nat()
    with (
        cabled({**ADDRESSES, "e": OUTER_OF_D}) as found,
        behind_nat(found, "d", router="e", address=INNER_OF_D),
    ):
        yield found


@pytest.fixture
def machines(
    tmp_path: Path,
    blank_sqlite: Path,
    trained_models: Path,
    network: Namespaces,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Machines]:
    checkpoint = {CHECKPOINT: str(trained_models / "tiny-llama")}
    with_d = WITH_D if "d" in network.names else {}
    found = Machines(tmp_path, network, REPLACED | with_d | checkpoint)
    blank_database.put(blank_sqlite, tmp_path / "a" / "data")
    begin, before_s = time.monotonic(), cpu_s()
    try:
        yield found
    finally:
        took_s = time.monotonic() - begin
        found.end()
    with capsys.disabled():
        print(f"\nthree machines: {took_s:.0f} s, {cpu_s() - before_s:.0f} CPU s")


@pytest.mark.e2e
@pytest.mark.long
def test_the_page_leads_to_an_answer_and_names_broken_links(
    machines: Machines,
) -> None:
    firewall(machines.network, "add")
    firewall(machines.network, "add", port=7001)  # stays: no plan is refused for it
    has_d = "d" in machines.network.names
    joining_c = None
    for block in blocks(PAGE):
        side = machine_of(block)
        if side == "c":
            joining_c = block
        if has_d and joining_c is not None and block.commands[0].startswith(COMPUTE):
            d_joins(machines, as_on_d(joining_c))
        if block.commands == [DEPLOY]:
            status, said = machines.once(DEPLOY, "a")
            assert (status != 0, B_TO_C in said) == (True, True), said
            firewall(machines.network, "del")
            cuts = map(re.escape, [NO_WEIGHTS, *(TO_D if has_d else ())])
            machines.until("helixweb status", "a", [r"(?s)\A(?!.*cannot reach c).*online", *cuts])
            if has_d:
                a_plan_through_d_is_refused(machines)
        said = machines.run(block, side)
        assert "[0, 12)" not in said, "one machine holds the whole model"


def as_on_d(block: Block) -> Block:
    """The command by which c joins, with the name and the address of d."""
    text = block.text.replace("--name c", "--name d").replace("… c of", "… d of")
    return replace(block, text=text.replace(ADDRESSES["c"], str(INNER_OF_D.ip)))


def d_joins(machines: Machines, join: Block) -> None:
    machines.run(join, "d")
    assert machines.once("helixweb node edit d --profile b --confirm-profile", "a")[0] == 0


def a_plan_through_d_is_refused(machines: Machines) -> None:
    """All its links are known, since it dials the others; they do not reach it."""
    ask = f"helixweb api POST /plan-runs/ --data '{json.dumps(THROUGH_D)}'"
    machines.until("helixweb api GET /links/ --query origin=measured", "a", [r'"count": 12,'])
    machines.until(ask, "a", [r'"id": 2,'])
    machines.until("helixweb api GET /plan-runs/2/", "a", [r'"plan": 2'])
    status, said = machines.once("helixweb deploy 2", "a")
    assert (status != 0, TO_D[0] in said) == (True, True), said


def cpu_s() -> float:
    """Of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

"""A machine whose agent dies and comes back stays one node, with one address and one assignment.

A real agent, killed again and again; its stage acts as an emulated node. Its data folder is lost
once: then the name is another machine's until a person removes the old row.
"""

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from helixweb.demo.processes import Running
from planner.domain.layer_times import LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.profile import ComputeProfile
from runtime.protocol.emulation import Emulation
from tests.e2e.control_plane import ControlPlane
from tests.e2e.day_of_work import Person
from tests.e2e.joined_doubles import JoinedDoubles
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

NODE = "tower"
REJOINS = 20
_LAYERS = 3  # the tower can hold them all


class Machine:
    """One data folder and the agent that lives on it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.data_dir = folder / "agent"
        self._plane = plane
        self._emulation = folder / "emulation.json"
        self._emulation.write_text(_emulation().model_dump_json())
        self._agent: Running | None = None

    def start(self, *options: str) -> Running:
        command = [
            sys.executable, "-m", "runtime", "agent", f"--server={self._plane.url}",
            f"--name={NODE}", "--region=home", f"--data-dir={self.data_dir}",
            f"--emulate={self._emulation}", *options,
        ]  # fmt: skip
        self._agent = self._plane.processes.start("agent", command)
        return self._agent

    def kill(self) -> None:
        assert self._agent is not None
        self._agent.process.kill()
        self._agent.process.wait()


def _emulation() -> Emulation:
    return Emulation(
        profile=ComputeProfile(
            name="emulated",
            gpu="emulated",
            vram_bytes=1e9,
            max_layers=_LAYERS,
            tokens_per_s=(1000.0,) * _LAYERS,
            kv_capacity_token_layers=(20_000.0,) * _LAYERS,
            layer_times=LayerTimes(
                prompt=((10, 0.003), (200, 0.01)), decode=((1, 0.003), (8, 0.005))
            ),
        ),
        model=ModelSpec(
            name="tiny-llama",
            num_layers=_LAYERS,
            activation_bytes_per_token=256.0,
            token_bytes=4.0,
            bytes_per_layer=1e6,
        ),
        vocab_size=300,
    )


class Site:
    """A cluster of the one machine and a coordinator, as a person sees it."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.cluster = person.import_small_cluster("one", [NODE], layers=_LAYERS)
        self.model = person.give_checkpoint("tiny-llama", "/models/tiny-llama")

    def token(self, role: str) -> str:
        return self.person.token(self.cluster, role)

    def node(self) -> dict[str, Any]:
        """The only one there is."""
        (row,) = self.person.rows("nodes/", cluster=self.cluster)
        return row

    def assignments(self, deployment: int) -> list[tuple[int, str]]:
        rows = self.person.look(f"deployments/{deployment}/")["assignments"]
        return [(row["node"], row["phase"]) for row in rows]


def test_twenty_rejoins_leave_one_node(tmp_path: Path) -> None:
    with ControlPlane.running(tmp_path) as plane, ExitStack() as stack:
        person = plane.person
        site = Site(person)
        tokens = {"coordinator": site.token("coordinator")}
        stack.enter_context(JoinedDoubles(plane.url, tokens=tokens))
        machine = Machine(plane, tmp_path)
        machine.start(f"--token={site.token('node')}")
        until(lambda: site.node()["state"] == "online", "the node is online")
        first = site.node()
        deployment = person.deploy_a_plan(site.cluster, site.model)
        person.await_ready(deployment)

        for _ in range(REJOINS):
            machine.kill()
            seen = site.node()["last_seen_at"]
            machine.start()
            until(lambda seen=seen: site.node()["last_seen_at"] > seen, "it is heard again")
            told = site.node()
            assert (told["id"], told["uuid"]) == (first["id"], first["uuid"])
            assert told["data_endpoint"] == first["data_endpoint"]
        until(
            lambda: site.assignments(deployment) == [(first["id"], "ready")],
            "the stage is ready in the same deployment",
        )
        assert person.look(f"deployments/{deployment}/")["generation"] == 1

        machine.kill()
        shutil.rmtree(machine.data_dir)
        refused = machine.start(f"--token={site.token('node')}")
        assert refused.process.wait(PATIENCE_S) == 2
        assert "belongs to another machine" in refused.child.last_lines()
        assert site.node()["uuid"] == first["uuid"]

        path = f"nodes/{first['id']}/"
        person.insist("DELETE", path, done=lambda: not person.rows("nodes/", cluster=site.cluster))
        machine.start(f"--token={site.token('node')}")
        until(lambda: bool(person.rows("nodes/", cluster=site.cluster)), "it has joined anew")
        anew = site.node()
        assert anew["uuid"] != first["uuid"]
        until(
            lambda: site.assignments(deployment) == [(anew["id"], "ready")],
            "the deployment has followed the name to the machine it is now",
        )
        person.await_ready(deployment)
        assert [row["id"] for row in person.rows("deployments/")] == [deployment]

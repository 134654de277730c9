"""A person who works with the site all day, whatever becomes of it, and keeps a diary.

When the outcome of a request is not known, as its answer never came, the person looks, and repeats
what was not done: so everything that is in the diary must have happened exactly once.
"""

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tests.helixweb.conftest import TINY_PROBLEM
from tests.waiting import until

_NUMBERS = 1000  # no two edits use the same; they begin here


class Person:
    """`edits` are lines that the change log must hold once: kind, row, field, value."""

    def __init__(self, url: str, *, key: str, dice: random.Random) -> None:
        self._http = httpx.Client(
            base_url=f"{url}/api/v1/", headers={"Authorization": f"Bearer {key}"}, timeout=120
        )
        self.dice = dice
        self._number = _NUMBERS
        self.edits: list[tuple[str, int, str, str]] = []
        self.added: list[tuple[str, str]] = []
        self.removed: list[tuple[str, str]] = []
        self.runs: list[int] = []
        self.deployments: list[int] = []
        self.unknown = 0  # requests without an answer

    def close(self) -> None:
        self._http.close()

    def look(self, path: str, **params: Any) -> Any:
        """What is there; asked until an answer comes."""

        def answer() -> httpx.Response | None:
            told = self._ask("GET", path, params=params)
            return told if told is not None and told.status_code == httpx.codes.OK else None

        found = until(answer, f"GET {path} is answered")
        assert found is not None
        return found.json()

    def rows(self, path: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.look(path, limit=1000, **params)["results"]
        return found

    def insist(
        self,
        method: str,
        path: str,
        content: dict[str, Any] | None = None,
        *,
        done: Callable[[], bool],
    ) -> dict[str, Any] | None:
        """Ask until it is `done`; the answer, or None if only a look told of it."""
        answer: httpx.Response | None = None

        def is_done() -> bool:
            nonlocal answer
            answer = self._ask(method, path, json=content)
            if answer is not None and answer.is_success:
                return True
            assert _is_passing(answer), (method, path, answer and answer.text)
            return done()

        until(is_done, f"{method} {path} is done")
        if answer is None or not answer.is_success:
            return None
        return answer.json() if answer.content else {}

    def import_small_cluster(self, name: str, nodes: Sequence[str], *, layers: int) -> int:
        """Nodes of which one suffices for a model of so many layers."""
        problem = copy.deepcopy(TINY_PROBLEM)
        problem["model"]["num_layers"] = layers
        problem["compute_profiles"]["big"]["tokens_per_s"] = [100.0, 99.0, 98.0]
        big = {"region": "home", "compute_profile": "big"}
        problem["nodes"] = [{"name": node, **big} for node in nodes]
        problem["network"]["links"] = []
        return self.import_cluster(problem, name=name)

    def give_checkpoint(self, name: str, checkpoint: str) -> int:
        """The id of the model with that name, which has the checkpoint then."""
        (row,) = self.rows("models/", name=name)
        self._change("languagemodel", "models", row["id"], "checkpoint", checkpoint)
        return int(row["id"])

    def token(self, cluster: int, role: str) -> str:
        content = {"cluster": cluster, "role": role}
        made = self.insist("POST", "join-tokens/", content, done=lambda: False)
        assert made is not None
        return str(made["secret"])

    def import_cluster(self, problem: dict[str, Any], *, name: str) -> int:
        self.insist(
            "POST",
            "clusters/import/",
            {"problem": problem, "name": name},
            done=lambda: bool(self.rows("clusters/", name=name)),
        )
        return int(self.rows("clusters/", name=name)[0]["id"])

    def edit(self, cluster: int) -> None:
        """Another price of a node, or a slower link."""
        self._number += 1
        if self.dice.random() < 0.5:
            node = self.dice.choice(self.rows("nodes/", cluster=cluster))
            self._change("node", "nodes", node["id"], "price_per_hour", self._number / 100)
        else:
            link = self.dice.choice(self.rows("region-links/", cluster=cluster))
            latency_s = self._number / 1e6
            self._change("regionlink", "region-links", link["id"], "latency_s", latency_s)

    def _change(self, kind: str, collection: str, row: int, field: str, value: Any) -> None:
        path = f"{collection}/{row}/"
        self.insist("PATCH", path, {field: value}, done=lambda: self.look(path)[field] == value)
        self.edits.append((kind, row, field, str(value)))

    def add_node(self, cluster: int) -> None:
        self._number += 1
        name = f"extra-{self._number}"
        self.insist(
            "POST",
            "nodes/",
            {"cluster": cluster, "name": name, "region": "home"},
            done=lambda: bool(self.rows("nodes/", cluster=cluster, name=name)),
        )
        self.added.append(("node", name))

    def remove_node(self, cluster: int) -> None:
        """One that was added and never joined; none if there is none."""
        extra = [row for row in self.rows("nodes/", cluster=cluster) if "extra" in row["name"]]
        if not extra:
            return
        row = self.dice.choice(extra)
        self.insist(
            "DELETE",
            f"nodes/{row['id']}/",
            done=lambda: not self.rows("nodes/", cluster=cluster, name=row["name"]),
        )
        self.removed.append(("node", row["name"]))

    def start_plan(self, cluster: int, model: int, *, time_limit_s: float, **options: float) -> int:
        """A run; its seed is its name here."""
        self._number += 1
        seed = self._number
        content = {
            "cluster": cluster,
            "model": model,
            "options": {
                "objective": "flow",
                "time_limit_s": time_limit_s,
                "solver": "highs",
                "seed": seed,
                **options,
            },
        }

        def found() -> list[int]:
            rows = self.rows("plan-runs/", cluster=cluster)
            return [row["id"] for row in rows if row["options"]["seed"] == seed]

        self.insist("POST", "plan-runs/", content, done=lambda: bool(found()))
        (run,) = found()
        self.runs.append(run)
        return run

    def await_end(self, run: int) -> dict[str, Any]:
        path = f"plan-runs/{run}/"
        until(lambda: self.look(path)["finished_at"] is not None, f"run {run} ends")
        row: dict[str, Any] = self.look(path)
        return row

    def deploy(self, cluster: int, plan: int) -> None:
        before = len(self.rows("deployments/", cluster=cluster))
        self.insist(
            "POST",
            "deployments/",
            {"plan": plan},
            done=lambda: len(self.rows("deployments/", cluster=cluster)) > before,
        )
        rows = self.rows("deployments/", cluster=cluster)
        assert len(rows) == before + 1
        self.deployments.append(max(row["id"] for row in rows))

    def deploy_a_plan(self, cluster: int, model: int) -> int:
        """A search, and the deployment of what it found."""
        run = self.start_plan(cluster, model, time_limit_s=2)
        self.deploy(cluster, self.await_end(run)["plan"])
        return self.deployments[-1]

    def await_ready(self, deployment: int) -> None:
        path = f"deployments/{deployment}/"
        until(lambda: self.look(path)["status"] == "ready", f"deployment {deployment} is ready")

    def _ask(self, method: str, path: str, **what: Any) -> httpx.Response | None:
        try:
            return self._http.request(method, path, **what)
        except httpx.TransportError:
            self.unknown += 1
            return None


def _is_passing(answer: httpx.Response | None) -> bool:
    """Whether waiting helps: no answer, a fault, or processes not heard while the web was away."""
    if answer is None or answer.status_code >= 500:
        return True
    return answer.status_code == httpx.codes.CONFLICT and "silent" in answer.text

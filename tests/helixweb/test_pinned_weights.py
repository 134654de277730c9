"""All stages and coordinators of a deployment load one version of a model, whenever they start;
nodes fetch layers of models that the site has in its own folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient
from safetensors.numpy import save

from helixweb.deployment.models import Deployment
from helixweb.deployment.profiling import cancel_profiling, order_profiling
from helixweb.inventory.models import Cluster
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetching import fetch_checkpoint, fetch_if_elsewhere
from runtime.checkpoints.hub_names import HubSettings, weight_sources
from runtime.checkpoints.safetensors_header import read_entries
from runtime.checkpoints.weight_places import Places
from runtime.checkpoints.weight_store import WeightStore
from runtime.protocol.phases import Phase
from runtime.protocol.weight_access import PEERS_PATH, SITE_PATH, WeightAccess
from tests.helixweb.looking import answered, contains, fresh, shows
from tests.helixweb.process_doubles import FakeAgent, FakeCluster, make_plan
from tests.runtime.hub_server import COMMIT, HubServer, hub_server

NAME = "org/small"
NEWER = "f" * 40

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def hub(tmp_path: Path, settings: Any) -> Iterator[HubServer]:
    """A hub that the site is set to; what a model's weights are does not matter here."""
    folder = tmp_path / "on_hub"
    folder.mkdir()
    (folder / "config.json").write_bytes(b'{"model_type": "llama"}')
    with hub_server({NAME: folder}) as serving:
        settings.HF_ENDPOINT = serving.url
        yield serving


@pytest.fixture
def of_hub(joined: FakeCluster, hub: HubServer) -> FakeCluster:
    joined.model.checkpoint = NAME
    joined.model.save()
    return joined


def move_main(hub: HubServer) -> None:
    hub.older_commits.add(hub.commit)
    hub.commit = NEWER


def ordered(of_hub: FakeCluster, name: str) -> str:
    """The checkpoint that the node's stage is to load."""
    assignment = of_hub.agents[name].desired().assignment
    return assignment.checkpoint


def loaded_commit(checkpoint: str, store: Path, *sources: HubSettings) -> str:
    """Of what a process on a machine of its own gets now."""
    found = fetch_checkpoint(
        checkpoint, WeightStore(path=store), Places(sources=sources, sleep=lambda _: None)
    )
    return found.folder.name


def test_stages_that_load_at_different_times_hold_the_same_commit(
    of_hub: FakeCluster, api: APIClient, browser: Client, hub: HubServer, tmp_path: Path
) -> None:
    deployment = of_hub.deploy()
    source = HubSettings(endpoint=hub.url)
    first, *others = sorted(of_hub.used_agents)
    assert loaded_commit(ordered(of_hub, first), tmp_path / first, source) == COMMIT
    move_main(hub)
    assert loaded_commit(NAME, tmp_path / "unpinned", source) == NEWER
    for name in others:
        assert loaded_commit(ordered(of_hub, name), tmp_path / name, source) == COMMIT
    plan = of_hub.coordinator.plan
    assert loaded_commit(plan.checkpoint, tmp_path / "front", source) == COMMIT
    of_hub.agents[first].move("tcp://127.0.0.1:7999")  # a new generation is ordered
    assert fresh(deployment).generation == 2
    assert ordered(of_hub, first) == f"{NAME}@{COMMIT}"
    row = api.get(f"/api/v1/deployments/{deployment.pk}/").json()
    assert (row["checkpoint"], row["pinned_checkpoint"]) == (NAME, f"{NAME}@{COMMIT}")
    shown = browser.get(reverse("deployment", args=[deployment.pk])).content.decode()
    contains(shown, f">{NAME}<", f">{NAME}@{COMMIT}<")


def test_only_a_stop_changes_versions(of_hub: FakeCluster, api: APIClient, hub: HubServer) -> None:
    of_hub.deploy()
    of_hub.ready()
    move_main(hub)
    of_hub.plan = make_plan(of_hub.cluster, without="mini")
    beside = of_hub.deploy()
    assert (beside.follows_generation, beside.pinned_checkpoint) == (1, f"{NAME}@{COMMIT}")
    of_hub.ready(generation=2)
    assert api.post(f"/api/v1/deployments/{beside.pk}/stop/").status_code == 202
    newer = of_hub.deploy()
    assert newer.pinned_checkpoint == f"{NAME}@{NEWER}"
    answer = answered(api.post(f"/api/v1/deployments/{newer.pk}/roll-back/"), 202)
    back = Deployment.unscoped.get(pk=answer.json()["id"])
    assert (back.follows_generation, back.pinned_checkpoint) == (None, f"{NAME}@{COMMIT}")


def test_no_stage_takes_the_hubs_version_in_place_of_the_sites(
    of_hub: FakeCluster, hub: HubServer, tmp_path: Path, settings: Any
) -> None:
    folder = tmp_path / "models" / NAME
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    settings.HELIX_MODELS_DIR = str(tmp_path / "models")
    of_hub.deploy()
    checkpoint = ordered(of_hub, "tower")
    assert checkpoint not in (NAME, f"{NAME}@{COMMIT}")
    access = WeightAccess(
        directory=str(tmp_path / "store"), site="http://127.0.0.1:9", credential="hlxn_any"
    )
    site = weight_sources(access)[0]  # it is away
    with pytest.raises(CheckpointError, match=r"127\.0\.0\.1:9/.*cannot be reached.*deploy again"):
        loaded_commit(checkpoint, tmp_path / "store", site, HubSettings(endpoint=hub.url))


def test_unresolved_names_stay_unpinned(
    of_hub: FakeCluster, browser: Client, settings: Any
) -> None:
    settings.HF_ENDPOINT = "http://127.0.0.1:9"
    deployment = of_hub.deploy()
    assert ordered(of_hub, "tower") == NAME
    shows(browser.get(reverse("deployment", args=[deployment.pk])), "can hold different versions")
    settings.HF_HUB_OFFLINE = True
    of_hub.model.checkpoint = f"{NAME}@{COMMIT}"
    of_hub.model.save()
    deployment = of_hub.deploy()
    assert ordered(of_hub, "tower") == f"{NAME}@{COMMIT}"
    shown = browser.get(reverse("deployment", args=[deployment.pk])).content.decode()
    assert "can hold different versions" not in shown


CONFIG = b'{"model_type": "llama", "num_hidden_layers": 2}'
TENSORS = {f"model.layers.{layer}.w": bytes([layer + 1]) * 5_000_000 for layer in range(2)}


@pytest.fixture
def models_dir(tmp_path: Path, settings: Any) -> Path:
    """The site's folder with one model of two layers."""
    folder = tmp_path / "models" / "org" / "small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    tensors = {name: np.frombuffer(data, np.uint8) for name, data in TENSORS.items()}
    (folder / "model.safetensors").write_bytes(save(tensors))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_bytes(b"{}")
    settings.HELIX_MODELS_DIR = str(tmp_path / "models")
    return tmp_path / "models"


@pytest.fixture
def deployed(joined: FakeCluster, api: APIClient, models_dir: Path) -> FakeCluster:
    """A cluster that deploys the model of the folder."""
    joined.model.checkpoint = "org/small"
    joined.model.save()
    assert api.post("/api/v1/deployments/", {"plan": joined.plan.pk}).status_code == 202
    return joined


def access(agent: FakeAgent, store: Path, url: str) -> WeightAccess:
    credential = agent.http._credentials["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    return WeightAccess(directory=str(store), site=url, credential=credential)


@pytest.mark.django_db(transaction=True)
def test_a_node_fetches_its_layers_from_the_site_and_not_from_the_hub(
    deployed: FakeCluster,
    models_dir: Path,
    tmp_path: Path,
    live_server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    agent = deployed.agents["tower"]
    allowed = access(agent, tmp_path / "store", live_server.url)
    fetched = fetch_if_elsewhere("org/small", allowed)
    assert (fetched.folder / "config.json").read_bytes() == CONFIG
    name = "model.layers.1.w"
    assert fetched.fetch([name], lambda *_: None) == len(TENSORS[name])
    (file,) = fetched.folder.glob("*.safetensors")
    assert {each: entry.shape for each, entry in read_entries(file).items()} == {
        name: (len(TENSORS[name]),)
    }
    assert file.read_bytes().endswith(TENSORS[name])
    # by the path that the site's operator gave, on a machine that has no such path
    store = WeightStore(path=tmp_path / "other")
    path = str(models_dir / "org" / "small")
    by_path = fetch_checkpoint(path, store, Places(sources=weight_sources(allowed)))
    assert set(by_path.names()) == set(TENSORS)
    assert fetch_if_elsewhere(path, allowed) is None  # this machine has it
    assert fetch_if_elsewhere("/no/such/model", allowed) is None  # neither has
    for other in ("org/none", "org/small@v2"):
        with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
            fetch_if_elsewhere(other, allowed)
    wrong = allowed.model_copy(update={"credential": "hlxn_wrong"})
    with pytest.raises(CheckpointError, match="HTTP 401"):
        fetch_if_elsewhere("org/small2", wrong)


@pytest.mark.parametrize(
    ("model", "file", "status"),
    [
        ("org/small", "config.json", 200),
        ("org/small", "pytorch_model.bin", 404),
        ("org/small", "none.safetensors", 404),
        ("org/small", "model.safetensors", 400),
        ("org/none", "config.json", 404),
        ("org/other", "config.json", 404),  # of no deployment of this cluster
        ("../secret", "config.json", 404),
        ("{outside}", "config.json", 404),
        ("etc", "passwd", 404),
    ],
)
def test_nothing_but_models_of_the_folder_is_served(
    deployed: FakeCluster, models_dir: Path, model: str, file: str, status: int
) -> None:
    shutil.copytree(models_dir / "org" / "small", models_dir / "org" / "other")
    (models_dir / "org" / "small" / "none.safetensors").symlink_to("/etc/passwd")
    model = model.format(outside=str(models_dir.parent / "secret").strip("/"))
    answer = deployed.coordinator.http.get(f"{SITE_PATH}/{model}/resolve/site/{file}")
    assert answer.status_code == status, answer.content


def test_a_range_that_no_file_has_is_refused(deployed: FakeCluster) -> None:
    agent = deployed.agents["tower"]
    for first, status in (("9" * 18, 416), ("9" * 5000, 400)):
        answer = agent.http.get(
            f"{SITE_PATH}/org/small/resolve/site/model.safetensors",
            HTTP_RANGE=f"bytes={first}-{first}",
        )
        assert answer.status_code == status


def test_a_model_is_served_while_measured(joined: FakeCluster, user: Any, models_dir: Path) -> None:
    agent = joined.agents["tower"]
    path = f"{SITE_PATH}/org/small/resolve/site/config.json"
    assert agent.http.get(path).status_code == 404
    joined.model.checkpoint = str(models_dir / "org" / "small")
    joined.model.save()
    profiling = order_profiling(agent.row, joined.model, user=user, now=timezone.now())
    assert agent.http.get(path).status_code == 200
    cancel_profiling(profiling, now=timezone.now())
    assert agent.http.get(path).status_code == 404


def test_no_models_folder_no_models(deployed: FakeCluster, models_dir: Path, settings: Any) -> None:
    settings.HELIX_MODELS_DIR = ""
    agent = deployed.agents["tower"]
    for model in ("org/small", str(models_dir / "org" / "small")[1:]):
        answered(agent.http.get(f"{SITE_PATH}/{model}/resolve/site/config.json"), 404)


def test_a_node_learns_which_others_of_its_deployment_serve_weights(
    joined: FakeCluster, cluster: Cluster, user: Any, api: APIClient
) -> None:
    assert peers(joined.agents["tower"]) == {}
    assert api.post("/api/v1/deployments/", {"plan": joined.plan.pk}).status_code == 202
    first, *others = joined.used_agents.values()
    spare = FakeAgent(cluster, "spare", user, port=7099)
    for number, agent in enumerate([first, *others]):
        agent.beat(Phase.LOADING, generation=1, weights={"port": 9000 + number})
    joined.silence(others[0].name)
    assert peers(first) == {
        agent.name: f"tcp://127.0.0.1:{9001 + number}"
        for number, agent in enumerate(others)
        if number > 0
    }
    assert peers(spare) == {}
    first.beat(Phase.LOADING, generation=1)
    assert first.name not in peers(others[-1])


def peers(agent: FakeAgent) -> dict[str, str]:
    """Where the others serve weights, as the site says to `agent`."""
    answer = answered(agent.http.get(PEERS_PATH), 200)
    return {peer["name"]: peer["endpoint"] for peer in answer.json()["peers"]}

"""All stages and coordinators of a deployment load one version of a model, whenever they start."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetching import fetch_checkpoint
from runtime.checkpoints.hub_names import HubSettings, weight_sources
from runtime.checkpoints.weight_places import Places
from runtime.checkpoints.weight_store import WeightStore
from runtime.protocol.weight_access import WeightAccess
from tests.helixweb.looking import answered, contains, fresh, shows
from tests.helixweb.process_doubles import FakeCluster, make_plan
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
def joined(joined: FakeCluster, hub: HubServer) -> FakeCluster:
    joined.model.checkpoint = NAME
    joined.model.save()
    return joined


def move_main(hub: HubServer) -> None:
    hub.older_commits.add(hub.commit)
    hub.commit = NEWER


def ordered(joined: FakeCluster, name: str) -> str:
    """The checkpoint that the node's stage is to load."""
    assignment = joined.agents[name].desired().assignment
    return assignment.checkpoint


def loaded_commit(checkpoint: str, store: Path, *sources: HubSettings) -> str:
    """Of what a process on a machine of its own gets now."""
    found = fetch_checkpoint(
        checkpoint, WeightStore(path=store), Places(sources=sources, sleep=lambda _: None)
    )
    return found.folder.name


def test_stages_that_load_at_different_times_hold_the_same_commit(
    joined: FakeCluster, api: APIClient, browser: Client, hub: HubServer, tmp_path: Path
) -> None:
    deployment = joined.deploy()
    source = HubSettings(endpoint=hub.url)
    first, *others = sorted(joined.used_agents)
    assert loaded_commit(ordered(joined, first), tmp_path / first, source) == COMMIT
    move_main(hub)
    assert loaded_commit(NAME, tmp_path / "unpinned", source) == NEWER
    for name in others:
        assert loaded_commit(ordered(joined, name), tmp_path / name, source) == COMMIT
    plan = joined.coordinator.plan
    assert loaded_commit(plan.checkpoint, tmp_path / "front", source) == COMMIT
    joined.agents[first].move("tcp://127.0.0.1:7999")  # a new generation is ordered
    assert fresh(deployment).generation == 2
    assert ordered(joined, first) == f"{NAME}@{COMMIT}"
    row = api.get(f"/api/v1/deployments/{deployment.pk}/").json()
    assert (row["checkpoint"], row["pinned_checkpoint"]) == (NAME, f"{NAME}@{COMMIT}")
    shown = browser.get(reverse("deployment", args=[deployment.pk])).content.decode()
    contains(shown, f">{NAME}<", f">{NAME}@{COMMIT}<")


def test_only_a_stop_brings_a_newer_version_and_a_roll_back_the_older_one(
    joined: FakeCluster, api: APIClient, hub: HubServer
) -> None:
    joined.deploy()
    joined.ready()
    move_main(hub)
    joined.plan = make_plan(joined.cluster, without="mini")
    beside = joined.deploy()
    assert (beside.follows_generation, beside.pinned_checkpoint) == (1, f"{NAME}@{COMMIT}")
    joined.ready(generation=2)
    assert api.post(f"/api/v1/deployments/{beside.pk}/stop/").status_code == 202
    newer = joined.deploy()
    assert newer.pinned_checkpoint == f"{NAME}@{NEWER}"
    answer = answered(api.post(f"/api/v1/deployments/{newer.pk}/roll-back/"), 202)
    back = Deployment.unscoped.get(pk=answer.json()["id"])
    assert (back.follows_generation, back.pinned_checkpoint) == (None, f"{NAME}@{COMMIT}")


def test_no_stage_takes_the_hubs_version_in_place_of_the_sites(
    joined: FakeCluster, hub: HubServer, tmp_path: Path, settings: Any
) -> None:
    folder = tmp_path / "models" / NAME
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    settings.HELIX_MODELS_DIR = str(tmp_path / "models")
    joined.deploy()
    checkpoint = ordered(joined, "tower")
    assert checkpoint not in (NAME, f"{NAME}@{COMMIT}")
    access = WeightAccess(
        directory=str(tmp_path / "store"), site="http://127.0.0.1:9", credential="hlxn_any"
    )
    site = weight_sources(access)[0]  # it is away
    with pytest.raises(CheckpointError, match=r"127\.0\.0\.1:9/.*cannot be reached.*deploy again"):
        loaded_commit(checkpoint, tmp_path / "store", site, HubSettings(endpoint=hub.url))


def test_a_name_that_the_site_cannot_look_up_is_deployed_as_written_and_the_page_says_so(
    joined: FakeCluster, browser: Client, settings: Any
) -> None:
    settings.HF_ENDPOINT = "http://127.0.0.1:9"
    deployment = joined.deploy()
    assert ordered(joined, "tower") == NAME
    shows(browser.get(reverse("deployment", args=[deployment.pk])), "can hold different versions")
    settings.HF_HUB_OFFLINE = True
    joined.model.checkpoint = f"{NAME}@{COMMIT}"
    joined.model.save()
    deployment = joined.deploy()
    assert ordered(joined, "tower") == f"{NAME}@{COMMIT}"
    shown = browser.get(reverse("deployment", args=[deployment.pk])).content.decode()
    assert "can hold different versions" not in shown

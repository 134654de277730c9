"""A model is made by saying where it is: a folder, a GGUF file, or a name on a hub."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from django.db import connections
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient
from safetensors.torch import save

from helixweb.inventory.as_code.documents import FORMAT
from helixweb.inventory.fits import fits_of_facts
from helixweb.inventory.models import CheckpointLook, Cluster, LanguageModel
from planner.domain.problem import Workload
from planner.memory import kv_minimum, node_room
from runtime.agent.checkpoint_looks import look
from runtime.checkpoints.model_facts import read_facts
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import model_memory
from runtime.models.config import read_config
from runtime.protocol.checkpoint_looks import TAKES_LOOKS
from runtime.protocol.control import DesiredState, Heartbeat, ObservedState
from runtime.protocol.phases import Phase
from tests.helixweb.inventory_files import IMPORT, bring_in
from tests.helixweb.looking import answered, contains, denied
from tests.helixweb.process_doubles import HARDWARE, FakeAgent
from tests.runtime.hub_server import HubServer, hub_server

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 8, "intermediate_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 100,
    "max_position_embeddings": 64, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip
# queries and outputs, keys and values, MLP, two norms; in two bytes each
LAYER_BYTES = 2 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8)
FACTS = {
    "num_layers": 3, "bytes_per_layer": LAYER_BYTES, "activation_bytes_per_token": 16,
    "num_heads": 2, "num_kv_heads": 1, "head_dim": 4, "max_context_tokens": 64,
    "embedding_bytes": 1600, "head_bytes": 16, "dtype": "bfloat16", "architecture": "llama",
}  # fmt: skip


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    """A file of zeros in BF16."""
    content: bytes = save({name: torch.zeros(shape).bfloat16() for name, shape in shapes.items()})
    return content


FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors": safetensors({"model.norm.weight": [8]}),
}
GPT2 = {
    "config.json": json.dumps(
        {
            "model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 32,
            "vocab_size": 50, "torch_dtype": "bfloat16",
        }
    ).encode(),
    "model.safetensors": safetensors(
        {"wte.weight": [50, 8]} | {f"h.{layer}.mlp.weight": [8, 32] for layer in range(2)}
    ),
}  # fmt: skip


@pytest.fixture
def models_dir(tmp_path: Path, settings: Any) -> Path:
    """The site's own folder of models, with one in it."""
    (tmp_path / "models" / "small").mkdir(parents=True)
    for name, content in FILES.items():
        (tmp_path / "models" / "small" / name).write_bytes(content)
    settings.HELIX_MODELS_DIR = str(tmp_path / "models")
    return tmp_path / "models"


@pytest.fixture
def hub(tmp_path: Path, settings: Any) -> Iterator[HubServer]:
    """A hub on loopback that the site is set to."""
    repositories = {"org/small": FILES, "gpt2": GPT2}
    folders = {name: tmp_path / "hub" / name for name in repositories}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        for file, content in repositories[name].items():
            (folder / file).write_bytes(content)
    with hub_server(folders) as serving:
        settings.HF_ENDPOINT = serving.url
        yield serving


def read(browser: Client, checkpoint: str, **typed: str) -> str:
    """What the form shows while that is typed."""
    answer = answered(browser.post(reverse("model-read"), {"checkpoint": checkpoint, **typed}), 200)
    return answer.content.decode()


def assert_facts(row: dict[str, Any] | LanguageModel) -> None:
    told = row if isinstance(row, dict) else {key: getattr(row, key) for key in FACTS}
    assert {key: told[key] for key in FACTS} == FACTS


def test_the_form_asks_for_a_model_and_reads_the_rest(browser: Client, models_dir: Path) -> None:
    page = browser.get(reverse("model-new")).content.decode()
    assert page.index('name="checkpoint"') < page.index('name="name"')
    path = str(models_dir / "small")
    shown = read(browser, path)
    assert 'name="name" value="small"' in shown
    contains(shown, f'name="bytes_per_layer" value="{LAYER_BYTES}"', "3 layers")
    answer = browser.post(reverse("model-new"), {"checkpoint": path})
    model = LanguageModel.objects.get()
    assert answer["Location"] == reverse("model", args=[model.pk])
    assert (model.name, model.checkpoint) == ("small", path)
    assert_facts(model)


def test_what_the_system_says_of_a_path_is_shown(browser: Client, models_dir: Path) -> None:
    assert "too long" in read(browser, str(models_dir / ("a" * 300)))


def test_a_form_that_reading_filled_is_stored_so(browser: Client, models_dir: Path) -> None:
    path = str(models_dir / "small")
    filled = dict(re.findall(r'name="(\w+)" value="([^"]*)"', read(browser, path)))
    browser.post(reverse("model-new"), {"checkpoint": path, **filled})
    assert_facts(LanguageModel.objects.get())


def test_a_name_and_numbers_that_were_typed_stay(browser: Client, models_dir: Path) -> None:
    path = str(models_dir / "small")
    assert 'name="name" value="mine"' in read(browser, path, name="mine")
    assert 'name="name" value="small"' in read(browser, path, name="old", read_name="old")
    sent = {"checkpoint": path, "name": "mine", "max_context_tokens": "32"}
    browser.post(reverse("model-new"), sent)
    model = LanguageModel.objects.get()
    assert (model.name, model.max_context_tokens, model.num_layers) == ("mine", 32, 3)


@pytest.mark.parametrize(
    ("checkpoint", "told"),
    [
        ("{models}/none", "no agent is online"),
        ("{models}/../secret", "no agent is online"),
        ("/etc", "no agent is online"),
        ("models/../small", "neither a whole path nor a name"),
        ("~/models/small", "not a whole path"),
        ("..\\small", "not a whole path"),
        ("{models}", "config.json does not exist"),
        ("org/none", "does not exist on"),
    ],
)
def test_a_wrong_path_or_name_is_refused_while_it_is_typed(
    browser: Client, models_dir: Path, hub: HubServer, checkpoint: str, told: str
) -> None:
    (models_dir.parent / "secret").mkdir()
    (models_dir.parent / "secret" / "config.json").write_bytes(FILES["config.json"])
    given = checkpoint.format(models=models_dir)
    assert told in read(browser, given)
    refused = answered(browser.post(reverse("model-new"), {"checkpoint": given, "name": "x"}), 422)
    assert told in str(refused.context["form"].errors["checkpoint"])
    assert not LanguageModel.objects.exists()


def test_rest_takes_a_name_and_a_checkpoint(api: APIClient, models_dir: Path) -> None:
    made = api.post("/api/v1/models/", {"name": "x", "checkpoint": str(models_dir / "small")})
    assert made.status_code == 201, made.content
    assert_facts(made.json())
    bare = answered(api.post("/api/v1/models/", {"name": "y"}), 400)
    assert {error["field"] for error in bare.json()["errors"]} == {
        "num_layers", "bytes_per_layer", "activation_bytes_per_token",
    }  # fmt: skip
    batch = {"create": [{"name": "y", "checkpoint": str(models_dir / "small")}]}
    denied(api.post("/api/v1/models/batch/", batch), 400, "a batch reads none")
    wrong = api.post("/api/v1/models/", {"name": "z", "checkpoint": str(models_dir / "none")})
    assert wrong.status_code == 422
    assert wrong["Content-Type"] == "application/problem+json"
    assert "none" in wrong.json()["detail"]


def test_a_file_names_checkpoints_instead_of_numbers(api: APIClient, models_dir: Path) -> None:
    path = str(models_dir / "small")
    models = [{"name": "x", "checkpoint": path}, {"name": "y", "checkpoint": path, "num_layers": 2}]
    file = {"format": FORMAT, "models": models}
    tried = bring_in(file, dry_run=True).json()
    answered(bring_in(file, expect=tried["digest"]), 200)
    assert_facts(LanguageModel.objects.get(name="x"))
    assert LanguageModel.objects.get(name="y").num_layers == 2
    assert bring_in(file).json()["steps"] == []
    wrong = {"format": FORMAT, "models": [{"name": "z", "checkpoint": str(models_dir / "none")}]}
    denied(bring_in(wrong), 400, "no agent is online")


def test_a_name_is_read_from_the_sites_own_copy_first(
    api: APIClient, models_dir: Path, hub: HubServer
) -> None:
    (models_dir / "org").mkdir()  # of models, no model
    (models_dir / "small").rename(models_dir / "org" / "small")
    made = answered(api.post("/api/v1/models/", {"name": "x", "checkpoint": "org/small"}), 201)
    assert_facts(made.json())
    assert hub.requests == 0
    for elsewhere in ("org/small@v2", "org"):
        before = hub.requests
        api.post("/api/v1/models/", {"name": "y", "checkpoint": elsewhere})
        assert hub.requests > before


def test_a_name_reads_only_headers_of_a_hub(api: APIClient, hub: HubServer, settings: Any) -> None:
    made = answered(api.post("/api/v1/models/", {"name": "x", "checkpoint": "org/small"}), 201)
    assert_facts(made.json())
    hub.asked.clear()
    counted = api.post("/api/v1/models/", {"name": "y", "checkpoint": "gpt2"}).json()
    assert (counted["num_layers"], counted["bytes_per_layer"]) == (2, 2 * 8 * 32)
    parts = [part for file, part in hub.asked if file == "model.safetensors"]
    header = len(GPT2["model.safetensors"]) - 2 * (50 * 8 + 2 * 8 * 32)
    assert parts == ["bytes=0-0", "bytes=0-7", f"bytes=8-{header - 1}"]
    pinned = api.post("/api/v1/models/", {"name": "p", "checkpoint": "org/small@main"})
    assert_facts(pinned.json())
    hub.token = "hf_good"
    closed = {"name": "z", "checkpoint": "org/small"}
    assert "set HF_TOKEN" in api.post("/api/v1/models/", closed).json()["detail"]
    settings.HF_TOKEN = "hf_good"
    assert api.post("/api/v1/models/", closed).status_code == 201


@pytest.mark.parametrize(
    "name",
    [
        "http://127.0.0.1/x",
        "org/../../x",
        "org/small?x=1",
        "a/b/c",
        "org/small#x",
        "@x/y",
        "x/y@../z",
    ],
)
def test_nothing_but_names_reaches_the_hub(api: APIClient, hub: HubServer, name: str) -> None:
    answered(api.post("/api/v1/models/", {"name": "x", "checkpoint": name}), 422)
    assert hub.requests == 0


def test_a_repository_of_gguf_files_is_refused_with_what_to_do(
    api: APIClient, browser: Client, tmp_path: Path, settings: Any
) -> None:
    for name in ("b-Q8_0.gguf", "a-Q4_0.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with hub_server({"org/small-GGUF": tmp_path}) as serving:
        settings.HF_ENDPOINT = serving.url
        shown = read(browser, "org/small-GGUF")
        assert "(a-Q4_0.gguf, b-Q8_0.gguf)" in shown
        assert "helixweb model pull org/small-GGUF/a-Q4_0.gguf" in shown
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        shown = read(browser, "org/small-GGUF")
        assert "helixweb model pull org/small-GGUF/a-Q4_0.gguf" in shown
        given = {"name": "x", "checkpoint": "org/small-GGUF/b-Q8_0.gguf"}
        refused = answered(api.post("/api/v1/models/", given), 422)
        assert "helixweb model pull org/small-GGUF/b-Q8_0.gguf" in refused.json()["detail"]


def test_a_hub_that_is_away_is_named(api: APIClient, settings: Any) -> None:
    settings.HF_ENDPOINT = "http://127.0.0.1:9"
    refused = answered(api.post("/api/v1/models/", {"name": "x", "checkpoint": "org/small"}), 422)
    assert "http://127.0.0.1:9 cannot be reached" in refused.json()["detail"]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 1.1])
def test_the_fit_before_measuring_is_that_of_the_memory_model(
    cluster: Cluster, user: Any, models_dir: Path, share: float
) -> None:
    facts = read_facts(models_dir / "small")
    config = read_config(models_dir / "small")
    limits = EngineLimits(page_tokens=16, max_batch_tokens=16, max_context_tokens=64)
    workload = Workload(
        mean_prompt_tokens=cluster.mean_prompt_tokens, mean_output_tokens=cluster.mean_output_tokens
    )
    minimum = kv_minimum(workload, longest_tokens=64)
    memory = model_memory(config, limits, kv_minimum=minimum)
    budget = int(share * memory.stage(3, has_first=True, has_last=True).needed)
    room = node_room(lambda *_: memory, budget_bytes=budget, num_layers=3)
    node = FakeAgent(cluster, "tower", user, port=7001).row
    node.hardware = {**HARDWARE, "memory_budget_bytes": budget}
    node.save()
    (fit,) = fits_of_facts(facts)
    both = room.memory.both.max_layers
    assert fit.layers >= both
    assert fit.fits == (both == 3) == (share > 1)


def test_the_speed_before_measuring_is_that_of_another_model_or_of_the_data_sheet(
    cluster: Cluster, user: Any, models_dir: Path, browser: Client
) -> None:
    tower = FakeAgent(cluster, "tower", user, port=7001).row
    gpu = {"name": "NVIDIA GeForce RTX 4090", "memory_bytes": 24_000_000_000}
    tower.hardware = {**HARDWARE, "gpus": [gpu]}
    tower.save()
    (fit,) = fits_of_facts(read_facts(models_dir / "small"))
    # the profile "big" of tiny-llama: 400 tokens/s with one layer of 1 MB
    assert fit.fits
    assert fit.nodes_with_speed == 1
    assert fit.tokens_per_s == pytest.approx(400 * 1e6 / LAYER_BYTES / 3)
    assert "by the known speed of 1 of 1 nodes" in read(browser, str(models_dir / "small"))
    tower.profile_name = ""
    tower.save()
    (by_sheet,) = fits_of_facts(read_facts(models_dir / "small"))
    assert by_sheet.nodes_with_speed == 1
    assert by_sheet.tokens_per_s > 0
    tower.hardware = {**HARDWARE, "gpus": []}
    tower.save()
    (unknown,) = fits_of_facts(read_facts(models_dir / "small"))
    assert unknown.nodes_with_speed == 0
    assert "measure the nodes" in read(browser, str(models_dir / "small"))


@pytest.mark.django_db(transaction=True)
def test_an_agent_looks_where_the_site_cannot(
    browser: Client, api: APIClient, cluster: Cluster, user: Any, models_dir: Path, settings: Any
) -> None:
    settings.HELIX_MODELS_DIR = ""
    agent = FakeAgent(cluster, "tower", user, port=7001)
    agent.beat(Phase.IDLE, generation=0)
    ended = threading.Event()
    looks_sent_unasked: list[bool] = []  # by an agent of a release that knew none

    def answer_orders() -> None:
        while not ended.wait(0.02):
            wanted = DesiredState.model_validate_json(
                agent.http.get(f"/api/v1/agent/desired?{TAKES_LOOKS}").content
            )
            if wanted.looks:
                before = agent.http.get("/api/v1/agent/desired").json()
                looks_sent_unasked.append("looks" in before)
                beat = Heartbeat(
                    observed=ObservedState(generation=0, phase=Phase.IDLE),
                    looked=tuple(look(order) for order in wanted.looks),
                )
                agent.http.post("/api/v1/agent/heartbeat", beat.model_dump(mode="json"))
        connections.close_all()

    answering = threading.Thread(target=answer_orders)
    answering.start()
    try:
        assert f'name="bytes_per_layer" value="{LAYER_BYTES}"' in read(
            browser, str(models_dir / "small")
        )
        assert "tower: " in (refused := read(browser, str(models_dir / "none")))
        assert "none does not exist" in refused
        body = {"name": "by-rest", "checkpoint": str(models_dir / "small")}
        once = {"Idempotency-Key": "k1"}
        made = [api.post("/api/v1/models/", body, headers=once) for _ in range(2)]
        assert [each.status_code for each in made] == [201, 201], made[0].content
        assert_facts(made[1].json())
        file = {"format": FORMAT, "models": [{**body, "name": "by-file"}]}
        assert bring_in(file).status_code == 200
        assert_facts(LanguageModel.objects.get(name="by-file"))
        again = {"format": FORMAT, "models": [{**body, "name": "x"}]}
        refused_file = api.post(IMPORT, again, headers={"Idempotency-Key": "k2"})
        assert "without Idempotency-Key" in refused_file.content.decode()
    finally:
        ended.set()
        answering.join()
    assert not CheckpointLook.unscoped.exists()
    assert looks_sent_unasked
    assert not any(looks_sent_unasked), "the agent would refuse the whole state"
    assert "looks" not in agent.http.get(f"/api/v1/agent/desired?{TAKES_LOOKS}").json()

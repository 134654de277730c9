"""From bare machines to a real model's answer, by the site's pages in Chromium."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from runtime.checkpoints.metadata import CONFIG, TOKENIZER, TOKENIZER_CONFIG, read_text
from runtime.checkpoints.tensor_holders import SINGLE_FILE
from runtime.models.checkpoint import TensorFiles
from runtime.models.compact_decoder import tensor_shapes
from runtime.models.config import CompactConfig, read_config
from tests.e2e.chromium import headless_chromium
from tests.e2e.person import Person
from tests.e2e.three_machines import ADDRESSES, CHECKPOINT, PAGE, Machines
from tests.e2e.walk_by_clicks import LAST, chat_model, walk_to_an_answer
from tests.runtime.hub_server import HubServer, hub_server
from tests.shaped_links.network import Namespaces, cabled, require_shaping

MOST_CLICKS = 15
HUB_ADDRESS = "10.99.0.4"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"

DEPLOYMENT = """
const [done] = arguments;
fetch("/api/v1/deployments/1/").then((answer) => answer.json()).then(done);
"""

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.long]


def documented_clicks() -> list[str]:
    """What the page's numbered list says in bold."""
    return re.findall(r"^\d+\. \*\*(.+?)\*\*", PAGE.read_text(), re.MULTILINE)


@pytest.fixture
def network() -> Iterator[Namespaces]:
    """Machines a, b and c, and d for a hub."""
    require_shaping()
    with cabled(ADDRESSES | {"d": HUB_ADDRESS}) as found:
        yield found


@pytest.fixture(params=["on the nodes", "on a hub"])
def hub(
    request: pytest.FixtureRequest,
    network: Namespaces,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[HubServer | None]:
    """On d, with the model as safetensors; None: every machine has the file."""
    if request.param == "on the nodes":
        yield None
        return
    folder = tmp_path / "original"
    as_safetensors(chat_model(), folder)
    with ExitStack() as stack:
        with network.inside("d"):
            serving = stack.enter_context(hub_server({HUB_NAME: folder}, host=HUB_ADDRESS))
        monkeypatch.setenv("HF_ENDPOINT", serving.url)
        yield serving


def as_safetensors(gguf: Path, folder: Path) -> None:
    """Write the model as a repository of a hub has it."""
    folder.mkdir()
    for name in (CONFIG, TOKENIZER, TOKENIZER_CONFIG):
        (folder / name).write_text(read_text(gguf, name) or "")
    config = compact(gguf)
    shapes = tensor_shapes(config, 0, config.num_layers)
    tensors = TensorFiles.of(gguf).read(shapes, dtype=config.dtype, device=torch.device("cpu"))
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})


def compact(checkpoint: Path) -> CompactConfig:
    config = read_config(checkpoint)
    assert isinstance(config, CompactConfig)
    return config


@pytest.fixture
def machines(tmp_path: Path, network: Namespaces, hub: HubServer | None) -> Iterator[Machines]:
    """In an empty folder; this process is on a."""
    checkpoint = str(chat_model()) if hub is None else HUB_NAME
    with network.inside("a"):
        found = Machines(tmp_path, network, {CHECKPOINT: checkpoint})
        try:
            yield found
        finally:
            found.end()


@pytest.fixture
def person(machines: Machines) -> Iterator[Person]:
    with headless_chromium() as browser:
        yield Person(browser, "http://10.99.0.1:8000")


def test_a_person_gets_from_an_empty_folder_to_the_answer_of_a_real_model(
    machines: Machines, person: Person, hub: HubServer | None
) -> None:
    walk = walk_to_an_answer(machines, person)
    print(f"{person.clicks} clicks, {walk.elapsed_s:.0f} s")
    assert person.look(LAST, "said") == "The capital of Japan is Tokyo."
    assert "[0, 30)" not in person.text("#messages"), "one machine holds the whole model"
    assert walk.clicked == documented_clicks()
    assert person.clicks == len(walk.clicked) <= MOST_CLICKS
    assert person.script_errors() == []
    if hub is not None:
        check_fetched_bytes(person, hub, compact(chat_model()))


def check_fetched_bytes(person: Person, hub: HubServer, config: CompactConfig) -> None:
    """No node fetched more than its layers, and what measuring it takes: the first and the last."""
    ends = {
        **tensor_shapes(config, 0, 1),
        **tensor_shapes(config, config.num_layers - 1, config.num_layers),
    }
    deployment = person.browser.execute_async_script(DEPLOYMENT)
    for row in deployment["assignments"]:
        name, first, end = row["node_name"], row["first"], row["end"]
        layers = tensor_shapes(config, first, end)
        own, most = size_of(layers, config), size_of(layers | ends, config)
        from_hub = hub.weights_sent[ADDRESSES[name]]
        sources = row["fetch"]["fetched"]
        from_peers = sum(count for source, count in sources.items() if source.startswith("peer "))
        print(
            f"{name}: layers [{first}, {end}) have {own:,} bytes, measuring needs {most - own:,} "
            f"more; fetched {from_hub:,} from the hub, {from_peers:,} from other nodes"
        )
        assert own <= from_hub + from_peers <= most + 0.02 * own, name


def size_of(shapes: Mapping[str, tuple[int, ...]], config: CompactConfig) -> int:
    """Bytes of these tensors in a file."""
    return sum(prod(shape) for shape in shapes.values()) * config.dtype.itemsize

"""`helixweb model pull` and `model add --store`: models in the models folder of this site."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations import site
from planner.units import bytes_text
from runtime.checkpoints.adding import add_checkpoint
from runtime.checkpoints.downloading import download
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.fetch_progress import Progress
from runtime.checkpoints.hub_names import (
    HubName,
    HubSettings,
    parse_gguf_name,
    parse_hub_name,
)
from runtime.checkpoints.metadata import gguf_file

ResultT = TypeVar("ResultT")


def add(arguments: Namespace, name: str | None) -> Path:
    """Have the checkpoint at the path `arguments.source` in the models folder, called `name`, else
    as it is called where it is. Returns its path there. Raises CommandFailed."""
    path = Path(arguments.source).expanduser()
    own = _name(name or path.resolve().name)
    if own is None or "/" in own.repository:
        raise BadUsage(
            f"{name or path.resolve().name!r} cannot be a model's name; give --name with letters, "
            "digits and . _ - alone"
        )
    with site.opened(arguments.data):
        folder = _models_folder() / own.repository
        _reported(
            arguments.surroundings, lambda progress: add_checkpoint(path, folder, progress=progress)
        )
    return folder


@site.on_site
def pull(around: Surroundings, model: str, *, json: bool) -> None:
    """`model pull`, declared in `helixweb.command_line.commands.model`."""
    from django.conf import settings

    of_gguf = parse_gguf_name(model)
    name, file = of_gguf or (_name(model), "")
    if name is None:
        raise CommandFailed(f"{model!r} is not a name on the hub; give one like org/model")
    folder = _models_folder() / name.repository
    hub = HubSettings(
        endpoint=settings.HF_ENDPOINT.rstrip("/"),
        token=settings.HF_TOKEN,
        offline=settings.HF_HUB_OFFLINE,
    )
    commit = _reported(
        around, lambda progress: download(name, folder, hub, progress=progress, gguf=file)
    )
    result = {"model": name.repository, "commit": commit, "folder": str(folder)}
    gguf = gguf_file(folder)
    rest = "nodes fetch it from this site"
    if gguf is not None:
        result["file"] = str(gguf)
        rest = f"put {gguf.name} at {gguf} on every node, then: helixweb model add {gguf}"
    text = f"{name.repository} is in {folder} (commit {commit[:12]}); {rest}"
    if json:
        around.say_json(result)
    else:
        around.say(text)


def _name(text: str) -> HubName | None:
    """The name of a model; None if it cannot be a folder of the site, or names a revision."""
    name = parse_hub_name(text)
    return name if name is not None and name.is_newest else None


def _models_folder() -> Path:
    from django.conf import settings

    if not settings.HELIX_MODELS_DIR:
        raise CommandFailed(
            "HELIX_MODELS_DIR is not set; set it to a folder, here and for the site, and restart "
            "the site"
        )
    return Path(settings.HELIX_MODELS_DIR).absolute()


def _reported(around: Surroundings, act: Callable[[Progress], ResultT]) -> ResultT:
    """Call `act` with a progress display and return its result. Raises CommandFailed."""
    say, shown = site.progress(around), -1

    def progress(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(1, total)
        if percent != shown:
            shown = percent
            say(f"{bytes_text(done)} of {bytes_text(total)} ({percent} %)")

    try:
        return act(progress)
    except CheckpointError as error:
        raise CommandFailed(str(error)) from error

"""What an emulated node is made to look like: a JSON file, written by whoever builds the cluster.

`profile` and `model` are the sections of a problem file with their names filled in. All times are
those of the emulated machine; `time_scale` of ours pass for each of them.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.profile import ComputeProfile
from runtime.protocol.complaints import StartRefused, first_complaint
from runtime.protocol.message import Message


class EmulationRefused(StartRefused):
    """A file that describes no node; the message names it, what is wrong and the remedy."""


class EmulatedLink(Message):
    """The way to one peer, in one direction."""

    bandwidth_bytes_per_s: float = Field(gt=0)
    latency_s: float = Field(ge=0)


class EmulatedNetwork(Message):
    """The links of a node, or of the coordinator; a peer that `links` does not name is reached at
    once.

    `transmission`: "decode_first" lets decodes overtake prompts that wait for a link, and one that
    is under way at the end of its present `piece_bytes` (None: when it is through); "fifo" does
    neither (the published systems).
    """

    model: ModelSpec
    links: dict[str, EmulatedLink] = {}
    transmission: Literal["decode_first", "fifo"] = "decode_first"
    piece_bytes: float | None = Field(default=65536.0, gt=0)
    time_scale: float = Field(default=1.0, gt=0)


class Emulation(EmulatedNetwork):
    """A node of that profile and its links.

    As in the simulator, a step without decodes takes no less than one with few. `step_overhead_s`
    is added to each step, `host_copy_s_per_byte` for each byte of activations that arrives.
    """

    profile: ComputeProfile
    vocab_size: int = Field(ge=2)
    step_overhead_s: float = Field(default=0.0, ge=0)
    host_copy_s_per_byte: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _has_times(self) -> "Emulation":
        if self.profile.layer_times is None:
            raise ValueError(
                f"profile {self.profile.name!r} has no layer_times; an emulated node needs them"
            )
        return self

    @property
    def layer_times(self) -> LayerTimes:
        if self.profile.layer_times is None:
            raise ValueError("validated to be there")
        return self.profile.layer_times

    def pages(self, held: Collection[int], *, page_tokens: int) -> int:
        """KV pages of a node that holds these layers. Raises EmulationRefused beyond its most."""
        has_first, has_last = 0 in held, self.model.num_layers - 1 in held
        most = self.profile.most_layers(has_first=has_first, has_last=has_last)
        if not 1 <= len(held) <= most:
            raise EmulationRefused(
                f"{len(held)} layers are assigned, profile {self.profile.name!r} holds at most "
                f"{most} there; give the node fewer"
            )
        room = self.profile.kv_room_token_layers(len(held), has_first=has_first, has_last=has_last)
        return int(room) // page_tokens


NetworkT = TypeVar("NetworkT", bound=EmulatedNetwork)


def read_emulation(path: Path) -> Emulation:
    """A node's. Raises EmulationRefused."""
    return _read(path, Emulation)


def read_network(path: Path) -> EmulatedNetwork:
    """The coordinator's. Raises EmulationRefused."""
    return _read(path, EmulatedNetwork)


def _read(path: Path, kind: type[NetworkT]) -> NetworkT:
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise EmulationRefused(f"{path}: {first_complaint(error, whole='the file')}") from error
    except (OSError, ValueError, InvalidProblem) as error:
        raise EmulationRefused(f"{path} cannot be read: {error}") from error

"""Whole-model instances of one model: what each is started with, and how requests are spread.

A JSON file for `python -m runtime front`. `times` are p1..p8 of a latency model
(planner/latency_model.py); without them only room counts. `kv_room_tokens` is what holds until the
instance's own metrics say otherwise.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from planner.latency_model import Fit, LatencyModel
from planner.routers.instance_choice import InstanceRouterName
from planner.routers.load_aware import DEFAULT_THETA, MAX_THETA, InstanceSpeed
from runtime.protocol.complaints import StartRefused, first_complaint
from runtime.protocol.message import Message

MAX_INSTANCES = 256
MOST_REQUESTS = 256  # at an instance at once, as vLLM takes into a batch
_ASSUMED_ROOM_TOKENS = 65_536
_NOT_OF_A_HOST = frozenset(" ?#")  # paths are put behind an address

InstanceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
_Term = Annotated[float, Field(ge=0)]
Terms = tuple[_Term, _Term, _Term, _Term]


class InstancesRefused(StartRefused):
    """A file that describes no instances; the message names it, what is wrong and the remedy."""


class EngineTimes(Message):
    """Seconds: p1..p4 of a prefill (b tokens, b, tokens, 1), p5..p8 of a decode step likewise."""

    prefill: Terms
    decode: Terms

    def latency(self) -> LatencyModel:
        return LatencyModel(
            prefill=Fit(parameters=self.prefill), decode=Fit(parameters=self.decode)
        )


class _Instance(Message):
    """What every instance has. `name` is also that of its log."""

    name: InstanceName
    weight: float = Field(default=1.0, gt=0)
    times: EngineTimes | None = None
    kv_room_tokens: int = Field(default=_ASSUMED_ROOM_TOKENS, ge=1)
    most_requests: int = Field(default=MOST_REQUESTS, ge=1)

    @field_validator("times")
    @classmethod
    def _take_some_time(cls, times: EngineTimes | None) -> EngineTimes | None:
        if times is not None and not any((*times.prefill, *times.decode)):
            raise ValueError(
                "all of them are 0, and no batch takes no time; measure it with `python -m runtime "
                "measure-instance`, or leave them out"
            )
        return times

    @property
    def speed(self) -> InstanceSpeed:
        return InstanceSpeed(
            kv_room_tokens=self.kv_room_tokens,
            latency=None if self.times is None else self.times.latency(),
            most_requests=self.most_requests,
        )


class _Started(_Instance):
    """One whose process is started and watched here. `command` begins its command line.

    `pass_environment` names variables that it gets of ours beside what every server needs, such as
    HF_TOKEN: secrets are not passed on unasked.
    """

    port: Port
    extra_arguments: tuple[str, ...] = ()
    pass_environment: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z_0-9]*$")], ...] = ()
    start_patience_s: float = Field(default=900.0, gt=0)
    drain_patience_s: float = Field(default=120.0, ge=0)


class VllmInstance(_Started):
    """`vllm serve` on the GPUs of these indices, as many as its tensor-parallel degree.

    `gpu_memory_utilization`, on CPUs a share of main memory: null is vLLM's default. With
    `cpu_threads` it runs on the CPU, by that many threads.
    """

    backend: Literal["vllm"]
    model: str = Field(min_length=1)
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    tensor_parallel: int = Field(default=1, ge=1)
    max_context_tokens: int | None = Field(default=None, ge=1)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    cpu_threads: int | None = Field(default=None, ge=1)
    command: tuple[str, ...] = Field(default=("vllm",), min_length=1)

    @model_validator(mode="after")
    def _has_a_gpu_for_each_rank(self) -> "VllmInstance":
        if len(set(self.gpus)) != len(self.gpus):
            raise ValueError(f"instance {self.name!r} names a GPU twice: {list(self.gpus)}")
        if len(self.gpus) != self.tensor_parallel:
            raise ValueError(
                f"instance {self.name!r} has {len(self.gpus)} GPUs for a tensor-parallel degree of "
                f"{self.tensor_parallel}; give it one for each rank"
            )
        return self


class TransformersInstance(_Started):
    """`transformers serve`, without continuous batching unless `extra_arguments` ask for it.

    It knows no API keys and tells no metrics.
    """

    backend: Literal["transformers"]
    model: str = Field(min_length=1)
    device: str = Field(default="auto", min_length=1)
    command: tuple[str, ...] = Field(default=("transformers",), min_length=1)


class HelixInstance(_Started):
    """Our own engine with all layers of a checkpoint in one stage (`python -m runtime serve`), a
    rank on each of `gpus`; without any, wherever torch finds room."""

    backend: Literal["helix"]
    checkpoint: str = Field(min_length=1)
    memory_budget_bytes: int = Field(gt=0)
    max_context_tokens: int | None = Field(default=None, ge=1)
    relative_speed: float = Field(default=1.0, gt=0, le=1)
    threads: int = Field(default=1, ge=1)
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = ()


class UrlInstance(_Instance):
    """Somebody else's server that speaks OpenAI's dialect: asked how it is, never started.

    `model` is its name there. `api_key_env` names the variable that holds the key. `stream_usage`:
    its streams end with token counts when they are asked to, which not every server allows.
    """

    backend: Literal["url"]
    url: str = Field(pattern=r"^https?://[^/]+")
    model: str = Field(min_length=1)
    api_key_env: str = Field(default="", pattern=r"^[A-Za-z_0-9]*$")
    stream_usage: bool = False

    @field_validator("url")
    @classmethod
    def _can_be_asked(cls, url: str) -> str:
        remedy = "write http(s)://HOST or http(s)://HOST:PORT, with a port of 1 to 65535"
        try:
            parts = urlsplit(url)
            is_wrong = not parts.hostname or parts.port == 0
        except ValueError as error:
            raise ValueError(f"{url!r} is no address ({error}); {remedy}") from error
        if is_wrong or not url.isprintable() or set(url) & _NOT_OF_A_HOST:
            raise ValueError(f"{url!r} is no address; {remedy}")
        return url


StartedInstance = VllmInstance | TransformersInstance | HelixInstance
InstanceSpec = Annotated[StartedInstance | UrlInstance, Field(discriminator="backend")]


class InstanceSet(Message):
    """The instances behind one model name, in order; see `planner.routers.instance_choice`.

    `api_key_hashes` are hex SHA-256 of the keys of those who may ask; `mean_output_tokens` is
    expected of an answer before any has ended.
    """

    model_name: str = Field(min_length=1)
    instances: tuple[InstanceSpec, ...] = Field(min_length=1, max_length=MAX_INSTANCES)
    router: InstanceRouterName = "load_aware"
    theta: float = Field(default=DEFAULT_THETA, gt=0, le=MAX_THETA)
    mean_output_tokens: int = Field(default=256, ge=1)
    api_key_hashes: tuple[Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")], ...] = Field(
        min_length=1
    )

    @model_validator(mode="after")
    def _share_nothing(self) -> "InstanceSet":
        started = [one for one in self.instances if not isinstance(one, UrlInstance)]
        placed = (one for one in started if isinstance(one, VllmInstance | HelixInstance))
        gpus = (gpu for one in placed for gpu in one.gpus)
        _refuse_twice("the name", (one.name for one in self.instances))
        _refuse_twice("port", (one.port for one in started))
        _refuse_twice("GPU", gpus)
        return self


def read_instances(path: Path) -> InstanceSet:
    """Raises InstancesRefused."""
    try:
        return InstanceSet.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise InstancesRefused(f"{path}: {first_complaint(error, whole='the file')}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InstancesRefused(f"{path} cannot be read: {error}") from error


def _refuse_twice(what: str, values: Iterable[object]) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]!r} is given to two instances; give each its own")

"""Whole-model instances between helixweb, agents and coordinators (JSON, within control messages).

An agent is told what its instances shall be, and tells how they are; a coordinator is told where
they answer, and tells what it sent them.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from planner.domain.instance import Backend
from runtime.protocol.instances import MOST_REQUESTS, InstanceName, Terms
from runtime.protocol.message import Count, Message, SmallCount
from runtime.protocol.vllm_flags import check_vllm_flags

MOST_SAID = 2000
MOST_CERTIFICATE = 8000


def _allowed(words: tuple[str, ...]) -> tuple[str, ...]:
    check_vllm_flags(words)
    return words


class AssignedInstance(Message):
    """What an agent shall run, the same in every generation that wants it so, so that it goes on.

    `gpus` are indices on the node. `api_key` is what its clients send. `vllm_flags` are further
    words of the command line if the backend is vLLM.
    """

    name: InstanceName
    backend: Backend
    model_name: str = Field(min_length=1)
    checkpoint: str = Field(min_length=1)
    gpus: tuple[SmallCount, ...] = Field(min_length=1)
    max_context_tokens: int | None = Field(default=None, ge=1)
    api_key: str = Field(min_length=1, repr=False)
    vllm_flags: Annotated[tuple[str, ...], AfterValidator(_allowed)] = ()


class ObservedInstance(Message):
    """How an instance is: `condition` as in `runtime.instances.health`. `port`: where it answers on
    the host of the node's stages; null before it is known. `log_tail` is the end of its log while
    it is not ready, `progress` what that says of how much is loaded. With a `certificate` (PEM) it
    answers by HTTPS, and presents that one."""

    name: InstanceName
    condition: str = Field(max_length=20)
    message: str = Field(default="", max_length=MOST_SAID)
    port: int | None = Field(default=None, ge=1, le=65535)
    progress: float | None = Field(default=None, ge=0, le=1)
    requests: Count | None = None
    kv_usage: float | None = Field(default=None, ge=0, le=1)
    log_tail: str = Field(default="", max_length=MOST_SAID)
    certificate: str = Field(default="", max_length=MOST_CERTIFICATE)


class InstanceAddress(Message):
    """Where an instance answers, and what its backend can be asked there.

    `model` is the model's name there. `lists_model`: /v1/models names it. `has_metrics`: there may
    be a /metrics. `tells_usage`: a stream ends with token counts if it is asked to.
    `takes_cache_salt`: the parameter of that name divides its prefix cache. Of an HTTPS address
    `certificate` (PEM) is the only one that is taken; empty: what everybody takes.
    """

    url: str = Field(pattern=r"^https?://[^/]+")
    model: str = Field(min_length=1)
    api_key: str = Field(default="", repr=False)
    lists_model: bool = True
    has_metrics: bool = True
    tells_usage: bool = True
    takes_cache_salt: bool = False
    certificate: str = Field(default="", max_length=MOST_CERTIFICATE)


class ServedInstance(InstanceAddress):
    """An instance as a coordinator reaches it. More than `most_requests` wait in the coordinator's
    line, which is fair to keys, not in the engine's.

    `prefill` and `decode` are the terms of its latency model (null: only room counts).
    """

    name: InstanceName
    node: str
    kv_room_tokens: int = Field(ge=1)
    most_requests: int = Field(default=MOST_REQUESTS, ge=1)
    prefill: Terms | None = None
    decode: Terms | None = None


def instance_url(host: str, port: int, *, certificate: str) -> str:
    """By HTTPS where it presents a certificate; an address of IPv6 goes into brackets."""
    scheme, at = "https" if certificate else "http", f"[{host}]" if ":" in host else host
    return f"{scheme}://{at}:{port}"


class InstanceTraffic(Message):
    """What a coordinator knows of an instance: requests there now, and answered since what it was
    told of the plan's instances last changed, how often it failed and why it did last, or what of
    its metrics is not understood, and how full it says it is.

    `waiting` of its requests are not being computed yet; null: it does not say.
    """

    node: str
    condition: str = Field(max_length=20)
    open: bool
    message: str = Field(default="", max_length=MOST_SAID)
    requests: SmallCount = 0
    waiting: Count | None = None
    kv_usage: float | None = Field(default=None, ge=0, le=1)
    answered_total: Count = 0
    failed_total: Count = 0
    output_tokens_total: Count = 0
    output_tokens_per_s: float = Field(default=0.0, ge=0)


PIPELINES: Literal["pipelines"] = "pipelines"  # the name that a plan's pipelines have among them

"""What vLLM can run on this node, asked of its environment; that takes seconds, so it is kept."""

import asyncio
import logging
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from runtime.protocol.engines import VLLM_VERSION, Engine, EngineOffer
from runtime.protocol.message import Message
from runtime.vllm_start import environment, words_of
from runtime.whole_file import write_whole

logger = logging.getLogger(__name__)

_PATIENCE_S = 900.0  # a busy machine reads gigabytes of libraries slowly
_TOLD = 200  # characters of what an environment writes before it fails


class _Kept(Message):
    key: tuple[str, ...]
    offer: EngineOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmFacts:
    """`python` of an environment with vLLM, on a machine with `gpus`; `file` keeps the answer."""

    python: str
    gpus: Sequence[str]
    file: Path

    def kept(self) -> EngineOffer | None:
        """The answer that was kept, if the environment and the GPUs are still the same."""
        try:
            kept = _Kept.model_validate_json(self.file.read_bytes())
        except (OSError, ValidationError):
            return None
        return kept.offer if kept.key == self._key() else None

    async def ask(self) -> EngineOffer:
        """The answer of the environment, which is kept; or why it has none."""
        offer = await self._ask()
        if offer.why_not:
            logger.warning("stages cannot use vLLM: %s", offer.why_not)
            return offer
        try:
            write_whole(self.file, _Kept(key=self._key(), offer=offer).model_dump_json().encode())
        except OSError as error:
            logger.warning("the next start asks vLLM again: %s", error)
        return offer

    def _key(self) -> tuple[str, ...]:
        """Another one whenever the answer may be."""
        places = Path(self.python).parent.parent.glob("lib*/python*/site-packages")
        changed = [str(place.stat().st_mtime_ns) for place in sorted(places)]
        return (VLLM_VERSION, self.python, *changed, *self.gpus)

    async def _ask(self) -> EngineOffer:
        words = words_of(self.python, "engine-facts")
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment()
            )
        except OSError as error:
            return _unusable(f"cannot start {self.python}: {error.strerror}")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                out, err = await process.communicate()
        except TimeoutError:
            return _unusable(f"{self.python} did not answer within {_PATIENCE_S:g} s")
        finally:
            if process.returncode is None:
                process.kill()
        try:
            return EngineOffer.model_validate_json(out)
        except ValidationError:
            said = err.decode(errors="replace").strip().rpartition("\n")[2][:_TOLD]
            return _unusable(f"{self.python} ended with status {process.returncode}: {said}")


def _unusable(why: str) -> EngineOffer:
    return EngineOffer(engine=Engine.VLLM, why_not=why[:400])

"""Reads layers of a checkpoint into vLLM's model code."""

import logging
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.layer_names import is_wanted
from runtime.checkpoints.safetensors_header import LENGTH_BYTES, TensorEntry, read_entries
from runtime.checkpoints.tensor_holders import tensor_holders
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine import vllm_compat as compat
from runtime.engine.backend import CannotRun
from runtime.engine.kv_cache import page_bytes
from runtime.engine.largest_step import DeviceMemory, pages_beside_step
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import pages_in_free_memory
from runtime.engine.stage_engine import RankPlace
from runtime.engine.vllm_cache import VllmCache
from runtime.engine.vllm_graphs import Record, graph_sizes
from runtime.engine.vllm_model import VllmModel
from runtime.engine.vllm_runner import VllmRunner
from runtime.models.free_memory import free_bytes, require_memory
from runtime.protocol.engines import VLLM_VERSION

logger = logging.getLogger(__name__)

_PAGE_MULTIPLE = 16
_LONGEST_REASON = 250
_READ_AT_ONCE = 1 << 24
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLayers:
    """Implements `ReadLayers`."""

    model: VllmModel
    sizes: DecoderSizes

    @property
    def engine(self) -> str:
        """What computes them, in words for people."""
        paths = ", ".join(self.model.paths)
        return f"vLLM {VLLM_VERSION} on {self.model.device} in {self.sizes.dtype_name} ({paths})"

    def pages(self, limits: EngineLimits, *, planned: int, budget_bytes: int) -> int:
        """See `ReadLayers`: on a GPU what the largest step leaves."""
        model, sizes = self.model, self.sizes
        if model.device.type != "cuda":
            free = free_bytes(model.device)
            ranges = [model.layers]
            return min(planned, pages_in_free_memory(sizes, limits, free_bytes=free, ranges=ranges))
        return pages_beside_step(
            model.run_largest,
            DeviceMemory(model.device),
            limits,
            budget_bytes=budget_bytes,
            page_bytes=page_bytes(sizes, page_tokens=limits.page_tokens),
            n_layers=len(model.layers),
        )

    def runner(
        self, *, pages: int, most_pages: int = 0, wire_dtype: torch.dtype | None = None
    ) -> VllmRunner:
        """See `ReadLayers`."""
        cache = VllmCache(self.model, pages=pages, most_pages=most_pages)
        return VllmRunner(self.sizes, cache, self.model.device, wire_dtype=wire_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadLayers:
    """Layers that vLLM can run, as far as is known before they are read.

    Implements `Rank` where several processes share each layer.
    """

    checkpoint: Path
    sizes: DecoderSizes
    layers: range
    limits: EngineLimits
    record: Record | None
    config: Any
    files: dict[str, Path]  # by tensor
    total_bytes: int

    def read(self, progress: Progress) -> VllmLayers:
        """Raises CannotRun."""
        sizes, page_tokens = self.sizes, self.limits.page_tokens
        progress(0, self.total_bytes)
        has_head = self.layers.stop == sizes.num_layers
        weights = compat.WeightFiles(
            holders=self.files,
            embedding=self.layers.start == 0 or (sizes.tie_word_embeddings and has_head),
            head=has_head,
            progress=lambda done_bytes: progress(done_bytes, self.total_bytes),
        )
        with _refusals(self.checkpoint, self.sizes, self.layers):
            model = VllmModel(
                self.config,
                weights,
                layers=self.layers,
                num_layers=sizes.num_layers,
                is_tied=sizes.tie_word_embeddings,
            )
            if self.record is not None and not model.record_decodes(
                self.record, limits=self.limits
            ):
                logger.warning("decode steps are not recorded: %s", ", ".join(model.paths))
        if model.page_tokens != page_tokens:
            raise CannotRun(
                f"vLLM keeps the KV cache of this model in pages of {model.page_tokens} tokens, "
                f"the plan in pages of {page_tokens}: deploy with pages of {model.page_tokens} "
                "tokens"
            )
        expected = page_bytes(sizes, page_tokens=page_tokens)
        if model.page_bytes != expected:
            raise CannotRun(
                f"a page of vLLM's KV cache has {model.page_bytes} bytes, {expected} were planned "
                "for; run the model with the engine helix"
            )
        return VllmLayers(model=model, sizes=sizes)

    def meet(self, place: RankPlace) -> None:
        """See `Rank`."""
        compat.join_ranks(
            self.config,
            rank=place.rank,
            ranks=place.ranks,
            meeting=place.meeting,
            patience=place.patience,
        )

    def leave(self) -> None:
        """See `Rank`."""
        compat.leave_ranks()


def check_layers(
    checkpoint: Path,
    sizes: DecoderSizes,
    layers: range,
    *,
    limits: EngineLimits,
    record: Record | None = None,
    ranks: int = 1,
) -> UnreadLayers:
    """Layers of a folder in safetensors to read, by this process and `ranks` - 1 others; `sizes`
    are those of one, and the type that it computes in.

    `record` makes graphs of decode steps; None: every step runs as it is. Raises CheckpointError,
    and CannotRun for what vLLM cannot run as a stage.
    """
    if limits.page_tokens % _PAGE_MULTIPLE:
        raise CannotRun(
            f"pages of {limits.page_tokens} tokens; vLLM needs a multiple of {_PAGE_MULTIPLE}: "
            "deploy with pages of 16 tokens"
        )
    files, entries = _wanted_tensors(checkpoint, sizes, layers)
    total_bytes = sum(entry.nbytes for entry in entries.values())
    require_memory(
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        needed_bytes=sizes.weights_bytes_of(layers),
        first=layers.start,
        end=layers.stop,
    )
    with _refusals(checkpoint, sizes, layers):
        config = compat.make_config(
            checkpoint,
            dtype=sizes.dtype_name,
            page_tokens=limits.page_tokens,
            max_context_tokens=limits.max_context_tokens,
            max_batch_tokens=limits.most_rows,
            ranks=ranks,
        )
        if record is not None:
            compat.allow_graphs(config, graph_sizes(limits.max_batch_tokens))
    return UnreadLayers(
        checkpoint=checkpoint,
        sizes=sizes,
        layers=layers,
        limits=limits,
        record=record,
        config=config,
        files=files,
        total_bytes=total_bytes,
    )


@contextmanager
def _refusals(checkpoint: Path, sizes: DecoderSizes, layers: range) -> Iterator[None]:
    """Raises CannotRun for what vLLM raises: it has no type of its own for models, dtypes and
    quantisations that it cannot run here."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (ValueError, AssertionError, RuntimeError) as error:
        logger.exception("vLLM made no model of %s", checkpoint)
        raise CannotRun(
            f"vLLM {VLLM_VERSION} cannot run layers [{layers.start}, {layers.stop}) of "
            f"{checkpoint}: {_reason(error)}; {_remedy(sizes)}"
        ) from error


def wanted_names(names: Collection[str], sizes: DecoderSizes, layers: range) -> set[str]:
    """Of the tensors `names` those that a stage with `layers` reads."""
    return {
        name
        for name in names
        if is_wanted(name, layers, num_layers=sizes.num_layers, is_tied=sizes.tie_word_embeddings)
    }


def _wanted_tensors(
    checkpoint: Path, sizes: DecoderSizes, layers: range
) -> tuple[dict[str, Path], dict[str, TensorEntry]]:
    """The tensors that a stage with `layers` reads: the file of each, and where it is in it.

    Raises CheckpointError.
    """
    _, holders = tensor_holders(checkpoint)
    files = {name: holders[name] for name in sorted(wanted_names(holders, sizes, layers))}
    entries = {
        name: entry
        for file in set(files.values())
        for name, entry in read_entries(file).items()
        if name in files
    }
    if lacking := files.keys() - entries.keys():
        raise CheckpointError(
            f"{files[min(lacking)]} lacks tensor {min(lacking)[:80]!r}; download the checkpoint "
            "again"
        )
    return files, entries


def have_at_hand(
    source: WeightSource, sizes: DecoderSizes, runs: Sequence[range], progress: Progress
) -> None:
    """Have what `UnreadLayers` reads for each of `runs` here, and in memory as far as the system
    keeps files there. Raises CheckpointError."""
    progress = source.fetch(
        lambda names: set().union(*(wanted_names(names, sizes, run) for run in runs)),
        read_bytes=sizes.weights_bytes_of(set().union(*runs)),
        progress=progress,
    )
    wanted = [_wanted_tensors(source.folder, sizes, run) for run in runs]
    total_bytes = sum(entry.nbytes for _, entries in wanted for entry in entries.values())
    done_bytes = 0
    progress(0, total_bytes)
    for files, entries in wanted:
        for name, path in files.items():
            with path.open("rb") as file:
                start = LENGTH_BYTES + int.from_bytes(file.read(LENGTH_BYTES), "little")
                file.seek(start + entries[name].begin)
                left = entries[name].nbytes
                while left > 0 and (read := len(file.read(min(left, _READ_AT_ONCE)))):
                    left -= read
                    done_bytes += read
                    progress(done_bytes, total_bytes)


def _remedy(sizes: DecoderSizes) -> str:
    if sizes.quantization:
        return (
            f"choose a node that has a kernel for {sizes.quantization} weights, or a checkpoint "
            "in another type"
        )
    return "for a family of HelixWeb's own, start the node's agent with --engine helix"


def _reason(error: BaseException) -> str:
    """The first sentences of the first cause that says something, or the line that failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    failed = traceback.extract_tb(error.__traceback__)[-1].line or "no message"
    first, *others = (lines[0] if lines else failed).split(". ")
    for sentence in others:
        if len(first) + len(sentence) > _LONGEST_REASON or sentence.endswith(":"):
            break
        first += f". {sentence}"
    return f"{type(error).__name__}: {first[: 2 * _LONGEST_REASON].rstrip('.')}"

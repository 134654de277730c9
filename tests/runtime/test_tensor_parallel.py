"""A layer shared by processes, against the same layer in one."""

import multiprocessing
from pathlib import Path

import family_checkpoints
import pytest
import torch
from family_checkpoints import BRIDGED, COMPACT, Family
from rank_process import folder_of, logits_of, run_rank
from torch import Tensor

from runtime.models.checkpoint import CheckpointError
from runtime.models.config import CompactConfig, read_config
from runtime.models.ranks import ALONE
from runtime.models.sharding import Shard, layer_pieces, shard_config
from runtime.models.weights import load_decoder

CPU = torch.device("cpu")
NAMES = ("llama 3", "mistral sliding", "qwen2", "qwen3 tied")


class Listed:
    """Ranks for loading alone: what a rank holds is known without the others."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    def sum(self, part_TD: Tensor) -> Tensor:
        raise AssertionError("nothing is computed")

    def join(self, part_TV: Tensor, *, width: int) -> Tensor:
        raise AssertionError("nothing is computed")


def checkpoint(directory: Path, name: str) -> Path:
    family = COMPACT[name]
    odd = {"vocab_size": 299}  # no degree divides it
    made = Family(model_type=family.model_type, changes=family.changes | odd)
    path = folder_of(directory, name)
    family_checkpoints.save(made, path, seed=3)
    return path


@pytest.mark.processes
@pytest.mark.parametrize("degree", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_that_share_layers_give_the_logits_of_one_process(
    degree: int, tmp_path: Path
) -> None:
    """With 4 ranks and 2 KV heads, two ranks hold the same KV head."""
    alone = {name: logits_of(checkpoint(tmp_path, name), ALONE) for name in NAMES}
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=run_rank, args=(tmp_path, NAMES, rank, degree))
        for rank in range(degree)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
        assert process.exitcode == 0
    for rank in range(degree):
        found = torch.load(tmp_path / f"logits-{rank}-of-{degree}.pt")
        for name in NAMES:
            torch.testing.assert_close(found[name], alone[name], rtol=1e-4, atol=1e-4)
            assert torch.equal(found[name].argmax(-1), alone[name].argmax(-1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("degree", [2, 4])
def test_the_ranks_together_hold_each_row_and_column_once(
    name: str, degree: int, tmp_path: Path
) -> None:
    """KV heads fewer than ranks apart, which several hold; and norms, which all do."""
    config = read_config(checkpoint(tmp_path, name))
    assert isinstance(config, CompactConfig)
    for field in ("output_DE", "gate_up_ID", "down_DI"):
        held = [
            layer_pieces(config, 0, Shard(rank=rank, ranks=degree))[field][0]
            for rank in range(degree)
        ]
        spans = [piece.columns or piece.rows for piece in held]
        total = held[0].shape[0] if held[0].columns is None else held[0].shape[1]
        assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
        assert spans[-1][1] == total


def test_a_rank_holds_its_share_of_the_weights(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "qwen2")
    config = read_config(path)
    assert isinstance(config, CompactConfig)
    for rank in range(2):
        ranks = Listed(Shard(rank=rank, ranks=2))
        decoder = load_decoder(
            path, config, first=2, end=4, device=CPU, progress=lambda *_: None, ranks=ranks
        )
        expected = shard_config(config, ranks.shard).weights_bytes(2, 4)
        assert sum(layer.nbytes for layer in decoder.layers.values()) == expected
        assert expected == pytest.approx(config.weights_bytes(2, 4) / 2, rel=0.05)
        assert decoder.config.num_kv_heads == 1


def test_heads_that_cannot_be_dealt_out_are_refused(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "qwen2")
    with pytest.raises(CheckpointError, match="4 query heads and 2 KV heads cannot be dealt to 3"):
        load_decoder(
            path,
            read_config(path),
            first=0,
            end=1,
            device=CPU,
            progress=lambda *_: None,
            ranks=Listed(Shard(rank=0, ranks=3)),
        )


def test_the_bridge_says_that_it_cannot_share_a_layer(tmp_path: Path) -> None:
    family_checkpoints.save(BRIDGED["phi3"], tmp_path, seed=0)
    with pytest.raises(CheckpointError, match=r"only the bridge runs.*among 2 ranks"):
        load_decoder(
            tmp_path,
            read_config(tmp_path),
            first=0,
            end=1,
            device=CPU,
            progress=lambda *_: None,
            ranks=Listed(Shard(rank=0, ranks=2)),
        )


def test_a_rank_outside_its_group_is_refused() -> None:
    with pytest.raises(ValueError, match="rank is 2"):
        Shard(rank=2, ranks=2)

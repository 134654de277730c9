"""A tensor-parallel rank as a process of its own; imports nothing that is slow to start."""

from datetime import timedelta
from pathlib import Path

from runtime.module_loading import loading

with loading("torch"):
    import torch
    from torch import Tensor, distributed

from runtime.models.config import read_config
from runtime.models.dense_attention import attend_densely
from runtime.models.ranks import Ranks
from runtime.models.weights import load_decoder

TOKENS = 21


def folder_of(directory: Path, name: str) -> Path:
    return directory / name.replace(" ", "-")


def logits_of(path: Path, ranks: Ranks) -> Tensor:
    """Of every row of one prompt, over two stages of this rank."""
    config = read_config(path)
    ids_T = torch.randint(
        0, config.vocab_size, (TOKENS,), generator=torch.Generator().manual_seed(0)
    )
    hidden_TD = torch.empty(0)
    with torch.inference_mode():
        for first, end in ((0, 4), (4, config.num_layers)):
            decoder = load_decoder(
                path,
                config,
                first=first,
                end=end,
                device=torch.device("cpu"),
                progress=lambda _done, _total: None,
                ranks=ranks,
            )
            if first == 0:
                hidden_TD = decoder.embed(ids_T)
            rotation = decoder.rotation(torch.arange(TOKENS))
            for layer in range(first, end):
                hidden_TD = decoder.run_layer(
                    layer, hidden_TD, rotation=rotation, attend=attend_densely
                )
        return decoder.logits(hidden_TD)


def run_rank(directory: Path, names: tuple[str, ...], rank: int, ranks: int) -> None:
    """A process of its own: writes the logits of each family."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{directory}/meeting-{ranks}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=240),
    )
    group = distributed.group.WORLD
    assert group is not None
    mine = Ranks.of(group)
    found = {name: logits_of(folder_of(directory, name), mine) for name in names}
    torch.save(found, directory / f"logits-{rank}-of-{ranks}.pt")
    distributed.destroy_process_group()

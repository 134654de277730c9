"""Tensors that are fetched from files of a repository, those side by side at once."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from runtime.checkpoints.fetch_progress import FetchProgress
from runtime.checkpoints.hub import Repository
from runtime.checkpoints.weight_store import TensorPart


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTensor:
    """A tensor that is not here, and where it lies in the file `file` of the repository."""

    file: str
    begin: int
    end: int
    part: TensorPart

    @property
    def at(self) -> int:
        """Where the bytes that are still missing begin."""
        return self.begin + self.part.held_bytes()

    @property
    def is_here(self) -> bool:
        """True if no byte is missing."""
        return self.part.path.is_file() and self.at == self.end


def place_of(wanted: WantedTensor) -> tuple[str, int, int]:
    return wanted.file, wanted.begin, wanted.end


def runs_of(wanted: Iterable[WantedTensor]) -> Iterator[list[WantedTensor]]:
    """Those whose missing bytes lie side by side in one file."""
    run: list[WantedTensor] = []
    for each in sorted(wanted, key=place_of):
        if run and (run[-1].file, run[-1].end) != (each.file, each.at):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def fetch_run(repository: Repository, run: list[WantedTensor], count: FetchProgress) -> None:
    """Raises HubError and OSError."""
    with closing(repository.stream(run[0].file, run[0].at, run[-1].end)) as stream:
        rest = b""
        for each in run:
            missing = each.end - each.at
            with each.part.appending() as file:
                while missing:
                    rest = rest or next(stream)
                    piece, rest = rest[:missing], rest[missing:]
                    file.write(piece)
                    missing -= len(piece)
                    count.add(each.part.name, len(piece))
        next(stream, None)  # reads the end of the answer, so that its connection is used again

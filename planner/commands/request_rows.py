"""Writes every request of a simulation as a row of a CSV file; see `COLUMNS`."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.simulator.record import OnRequest, RequestRecord

# What a cell of the column has, in the order of the columns.
COLUMNS = {
    "request": "number in the order in which requests were let in, from 0",
    "arrival_s": "when it reached the coordinator, in seconds of the simulation",
    "admitted_s": "when it was first let in; it waited until then",
    "first_token_s": "when its first token reached the coordinator",
    "finished_s": "when its last token did",
    "prompt_tokens": "tokens of its prompt",
    "output_tokens": "tokens of its answer",
    "attempts": "1, and 1 more for every time that it lost its KV pages or found none",
    "path": "stages of its last attempt, NODE[first:end] of layers, in order",
    "hop_waits_s": "seconds that its prompt's chunks and its decodes waited for steps, by stage of "
    "the path, added up",
}


@contextmanager
def request_rows(path: Path) -> Iterator[OnRequest]:
    """Writes the header, and a row for every request that it is called with, in order of ends."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        yield lambda record: writer.writerow(_cells(record))


def _cells(record: RequestRecord) -> list[object]:
    times_s = (record.arrival_s, record.admitted_s, record.first_token_s, record.finished_s)
    return [
        record.number,
        *(f"{time_s:.6f}" for time_s in times_s),
        record.prompt_tokens,
        record.output_tokens,
        record.attempts,
        " ".join(f"{stage.node}[{stage.first}:{stage.end}]" for stage in record.pipeline.stages),
        " ".join(f"{wait_s:.6f}" for wait_s in record.waits_s),
    ]

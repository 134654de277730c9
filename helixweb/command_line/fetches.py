"""Progress of weight downloads, as commands print it."""

from helixweb.client import Row
from helixweb.command_line.output import NOTHING, duration
from planner.units import bytes_text


def fetched(assignment: Row) -> str:
    """1.2 GB of 3 GB (peer a 1 GB, hub 200 MB), 12.0 s left"""
    fetch = assignment["fetch"]
    if fetch is None:
        return NOTHING
    by_source = dict(sorted(fetch["fetched"].items(), key=lambda one: -one[1]))
    text = f"{bytes_text(sum(by_source.values()))} of {bytes_text(fetch['needed_bytes'])}"
    if by_source:
        each = (f"{source} {bytes_text(count)}" for source, count in by_source.items())
        text += f" ({', '.join(each)})"
    is_loading = assignment["phase"] == "loading" and fetch["eta_s"] is not None
    return f"{text}, {duration(fetch['eta_s'])} left" if is_loading else text

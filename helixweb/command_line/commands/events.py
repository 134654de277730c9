"""`helixweb events`: follow events, and resume after a break."""

import itertools
import os
import select
import threading
from collections.abc import Sequence
from typing import TextIO

from helixweb.client.wire import Event
from helixweb.command_line import exit_codes
from helixweb.command_line.command import command
from helixweb.command_line.failures import NoSuchName
from helixweb.command_line.numbers import Count
from helixweb.command_line.output import json_line, one_line
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session

# The server limits the topics of one stream.
MOST_CLUSTERS = 100
# Fields that the line shows elsewhere, or leaves out.
_UNTOLD = ("event_id", "topic", "text", "said", "of")


@command()
def events(
    site: Session,
    *,
    cluster: str | None = None,
    topic: Sequence[str] = (),
    since: str = "",
    count: Count | None = None,
) -> None:
    """Follow what happens.

    --topic: such as plan-run:7
    --since ID: go on after this event
    --count: end after so many
    """
    clusters = [cluster_named(site, cluster)] if cluster is not None else []
    if not (clusters or topic):
        clusters = list(site.client.clusters.all(limit=MOST_CLUSTERS + 1))
    if len(clusters) > MOST_CLUSTERS:
        site.around.warn(f"only the first {MOST_CLUSTERS} clusters; name one with --cluster")
    topics = [*topic, *(f"cluster:{one['id']}" for one in clusters[:MOST_CLUSTERS])]
    if not topics:
        raise NoSuchName("there is no cluster yet, so nothing can happen in one")
    _end_with_the_reader(site.around.out)
    found = site.client.follow(topics, last_id=since, tell=site.around.warn)
    for event in itertools.islice(found, count):
        site.around.say(json_line(event._asdict()) if site.as_json else line(event))
        site.around.out.flush()


def _end_with_the_reader(out: TextIO) -> None:
    """End this process at once when the reader of the pipe `out` ends, as `tail -f` does.

    Lines are flushed one by one, so none is lost. Without `poll`, the next line ends it.
    """
    try:
        number = out.fileno()
    except (OSError, ValueError):
        return
    if hasattr(select, "poll"):
        threading.Thread(target=_watch, args=(number,), daemon=True).start()


def _watch(number: int) -> None:
    watched = select.poll()
    watched.register(number, 0)  # errors and hang-ups are always reported
    if any(state & select.POLLERR for _, state in watched.poll()):
        os._exit(exit_codes.OK)


def line(event: Event) -> str:
    """One event as readable text."""
    topic = one_line(event.data.get("topic"))
    text = event.data.get("text")
    if not isinstance(text, str):
        rest = {name: value for name, value in event.data.items() if name not in _UNTOLD}
        text = "  ".join(f"{name}={one_line(value)}" for name, value in rest.items())
    return f"{one_line(event.id)}  {topic}  {one_line(event.type)}  {one_line(text)}"

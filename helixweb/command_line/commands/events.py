"""`helixweb events`: follow events, and resume after a break."""

import argparse
import itertools
import os
import select
import threading
from typing import TextIO

from helixweb.client import Event
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names
from helixweb.command_line.output import json_line, one_line
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import NoSuchName
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session, connection_options, run_action, whole_number

run = run_action
# The server limits the topics of one stream.
MOST_CLUSTERS = 100
# Fields that the line shows elsewhere, or leaves out.
_UNTOLD = ("event_id", "topic", "text", "said", "of")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "events", help=COMMANDS["events"][1], parents=[connection_options()]
    )
    completed_by(parser.add_argument("--cluster", help="of this one only"), cluster_names)
    parser.add_argument("--topic", action="append", default=[], help="such as plan-run:7")
    parser.add_argument("--since", default="", metavar="ID", help="go on after this event")
    parser.add_argument("--count", type=whole_number, help="end after so many")
    parser.set_defaults(act=_follow)
    return parser


def _follow(site: Session, arguments: argparse.Namespace) -> int:
    topics = list(arguments.topic)
    if arguments.cluster is not None:
        topics.append(f"cluster:{cluster_named(site.client, arguments.cluster)['id']}")
    elif not topics:
        clusters = list(site.client.clusters.all(limit=MOST_CLUSTERS + 1))
        if len(clusters) > MOST_CLUSTERS:
            site.around.warn(f"only the first {MOST_CLUSTERS} clusters; name one with --cluster")
        topics = [f"cluster:{one['id']}" for one in clusters[:MOST_CLUSTERS]]
    if not topics:
        raise NoSuchName("there is no cluster yet, so nothing can happen in one")
    _end_with_the_reader(site.around.out)
    events = site.client.follow(topics, last_id=arguments.since, tell=site.around.warn)
    for event in itertools.islice(events, arguments.count):
        site.around.say(json_line(as_json(event)) if site.as_json else line(event))
        site.around.out.flush()
    return exit_codes.OK


def _end_with_the_reader(out: TextIO) -> None:
    """If `out` is a pipe whose reader ends, end this process at once, as `tail -f` does.

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


def as_json(event: Event) -> dict[str, object]:
    """One event for --json."""
    return {"id": event.id, "type": event.type, "data": event.data}


def line(event: Event) -> str:
    """One event for a person."""
    topic = one_line(event.data.get("topic"))
    text = event.data.get("text")
    if not isinstance(text, str):
        rest = {name: value for name, value in event.data.items() if name not in _UNTOLD}
        text = "  ".join(f"{name}={one_line(value)}" for name, value in rest.items())
    return f"{one_line(event.id)}  {topic}  {one_line(event.type)}  {one_line(text)}"

"""`helixweb top`: nodes, links and latencies, live. Ctrl-C ends it."""

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from helixweb.client import ServerFailed, TooManyRequests, Unreachable
from helixweb.command_line.command import command
from helixweb.command_line.commands.status import read_cluster, summary
from helixweb.command_line.numbers import Seconds
from helixweb.command_line.output import (
    Cells,
    bandwidth,
    cut,
    json_line,
    one_line,
    percent,
    rows_table,
)
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Row, Session

_ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_SIZE = (80, 24)
_BAR, _MOST_LINKS = 10, 6


@command()
def top(
    site: Session, cluster: str | None = None, *, once: bool = False, interval: Seconds = 2.0
) -> None:
    """Nodes, links and latencies, live.

    --once: one picture, then end
    --interval S: (2)
    """
    key = cluster_named(site, cluster)["id"]
    draws = not (once or site.as_json) and site.around.can_draw
    with _other_screen(site, draws=draws):
        while True:
            (_redraw if draws else _print)(site, key)
            if once:
                return
            site.around.sleep(interval)


@contextmanager
def _other_screen(site: Session, *, draws: bool) -> Iterator[None]:
    """Within, the terminal shows nothing else; Ctrl-C and SIGTERM leave, and give it back."""
    if not draws:
        yield
        return
    names = ("SIGTERM", "SIGHUP")  # Windows has one of them
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        site.around.out.write(_ENTER)
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        site.around.out.write(_LEAVE)
        site.around.out.flush()


def _print(site: Session, cluster: int) -> None:
    """Whole, for a file or a program; one line of JSON each with --json."""
    reading = read_cluster(site, site.client.clusters.get(cluster))
    if site.as_json:
        site.around.say(json_line(reading))
    else:
        columns, lines = shutil.get_terminal_size(_SIZE) if site.around.is_terminal else (200, 1000)
        site.around.say("\n".join(frame(reading, columns=columns, lines=lines)))
    site.around.out.flush()


def _redraw(site: Session, cluster: int) -> None:
    """Draw over the last frame; the last line says if the server does not answer."""
    columns, lines = shutil.get_terminal_size(_SIZE)
    try:
        reading = read_cluster(site, site.client.clusters.get(cluster))
        screen = frame(reading, columns=columns, lines=lines - 1)
    except (ServerFailed, TooManyRequests, Unreachable) as error:
        site.around.out.write(f"\x1b[{lines};1H{cut(one_line(error), columns - 1)}{_TO_LINE_END}")
    else:
        drawn = f"{_TO_LINE_END}\r\n".join(screen)
        site.around.out.write(f"{_HOME}{drawn}{_TO_LINE_END}{_TO_SCREEN_END}")
    site.around.out.flush()


def frame(reading: Row, *, columns: int, lines: int) -> list[str]:
    """A frame of at most `lines` lines of `columns` columns; rows that do not fit are counted."""
    head, links = summary(reading, most=3).split("\n")[: lines // 2], _links(reading["links"])
    room = lines - len(head) - 1 - (len(links) + 1 if links else 0)
    shown = [*head, "", *_fitted(_nodes(reading), max(room, 3))]
    if links:
        shown += ["", *links]
    return [cut(line, columns) for line in shown[:lines]]


def _nodes(reading: Row) -> list[str]:
    """Lost nodes first, then the busiest."""
    samples = (reading["metrics"] or {}).get("nodes", {})
    assignments = (reading["deployment"] or {}).get("assignments", [])
    layers = {one["node_name"]: f"[{one['first']},{one['end']})" for one in assignments}
    rows = [{**samples.get(node["name"], {}), **node} for node in reading["nodes"]]
    rows.sort(key=lambda row: (row["state"] != "lost", -(row.get("busy_ratio") or 0), row["name"]))
    cells: Cells = {
        "NODE": "name",
        "STATE": "state",
        "": lambda row: _bar(row.get("busy_ratio")),
        "BUSY": "busy_ratio",
        "TOK/S": "tokens_per_s",
        "KV": _kv,
        "SEQ": "sequences",
        "LAYERS": lambda row: layers.get(row["name"]),
    }
    return rows_table(cells, rows).split("\n")


def _kv(row: Row) -> str:
    total = row.get("kv_total_pages")
    return percent((row["kv_used_pages"] or 0) / total if total else None)


def _bar(ratio: float | None) -> str:
    full = round(_BAR * min(max(ratio or 0.0, 0.0), 1.0))
    return "#" * full + "." * (_BAR - full)


def _links(rows: Sequence[Row]) -> list[str]:
    """Stalled and slow links first, then the fullest."""
    links = []
    for row in rows:
        sent = row["urgent_bytes_per_s"] + row["bulk_bytes_per_s"]
        room = row["measured_bytes_per_s"] or row["planned_bytes_per_s"]
        links.append({**row, "sent": sent, "room": room, "load": sent / room if room else 0.0})
    links.sort(key=lambda one: (not (one["stalled"] or one["slow"]), -one["load"]))
    cells: Cells = {
        "LINK": lambda one: f"{one['source']} > {one['target']}",
        "FULL": lambda one: percent(one["load"]),
        "SENDS": lambda one: bandwidth(one["sent"]),
        "OF": lambda one: bandwidth(one["room"]),
        "RTT": "rtt_s",
        "STATE": lambda one: "STALLED" if one["stalled"] else "SLOW" if one["slow"] else "",
    }
    return rows_table(cells, links[:_MOST_LINKS]).split("\n") if links else []


def _fitted(lines: list[str], room: int) -> list[str]:
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"… and {len(lines) - room + 1} more nodes"]

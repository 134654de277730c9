"""`helixweb top`: nodes, links and latencies, live. Ctrl-C ends it."""

import shutil
import signal
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from helixweb.client import Row, ServerFailed, TooManyRequests, Unreachable
from helixweb.command_line.command import argument, command
from helixweb.command_line.numbers import seconds
from helixweb.command_line.output import (
    Cells,
    bandwidth,
    cut,
    duration,
    json_line,
    moment,
    number,
    one_line,
    percent,
    rows_table,
)
from helixweb.command_line.reading import Reading, read_cluster
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session

_ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_SIZE = (80, 24)
_BAR, _MOST_LINKS = 10, 6


@command(
    argument("cluster", nargs="?", help="its name or id", complete="clusters"),
    argument("--once", action="store_true", help="one picture, then end"),
    argument("--interval", type=seconds, default=2.0, metavar="S", help="(2)"),
)
def top(site: Session, arguments: Namespace) -> None:
    number = cluster_named(site.client, arguments.cluster)["id"]
    if arguments.once or site.as_json or not site.around.can_draw:
        _print(site, number)
        while not arguments.once:
            site.around.sleep(arguments.interval)
            _print(site, number)
        return
    with _other_screen(site):
        while True:
            _redraw(site, number)
            site.around.sleep(arguments.interval)


@contextmanager
def _other_screen(site: Session) -> Iterator[None]:
    """Within, the terminal shows nothing else; Ctrl-C and SIGTERM leave, and give it back."""
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
    reading = read_cluster(site.client, site.client.clusters.get(cluster))
    if site.as_json:
        site.around.say(json_line(asdict(reading)))
    else:
        columns, lines = shutil.get_terminal_size(_SIZE) if site.around.is_terminal else (200, 1000)
        site.around.say("\n".join(frame(reading, columns=columns, lines=lines)))
    site.around.out.flush()


def _redraw(site: Session, cluster: int) -> None:
    """Over the last picture; a server that is away for a moment is said on the last line."""
    columns, lines = shutil.get_terminal_size(_SIZE)
    try:
        reading = read_cluster(site.client, site.client.clusters.get(cluster))
        told = frame(reading, columns=columns, lines=lines - 1)
    except (ServerFailed, TooManyRequests, Unreachable) as error:
        site.around.out.write(f"\x1b[{lines};1H{cut(one_line(error), columns - 1)}{_TO_LINE_END}")
    else:
        drawn = f"{_TO_LINE_END}\r\n".join(told)
        site.around.out.write(f"{_HOME}{drawn}{_TO_LINE_END}{_TO_SCREEN_END}")
    site.around.out.flush()


def frame(reading: Reading, *, columns: int, lines: int) -> list[str]:
    """At most `lines` lines of at most `columns` columns; what does not fit is counted."""
    head = _head(reading)
    links = _links(reading.links)
    room = lines - len(head) - 1 - (len(links) + 1 if links else 0)
    told = [*head, "", *_fitted(_nodes(reading), max(room, 3))]
    if links:
        told += ["", *links]
    return [cut(line, columns) for line in told[:lines]]


def _head(reading: Reading) -> list[str]:
    states, sample, deployment = reading.states, reading.metrics, reading.deployment
    serves = "nothing deployed"
    if deployment is not None:
        serves = f"{deployment['model_name']} {deployment['status']} (#{deployment['id']})"
    counts = f"{states['online']}/{len(reading.nodes)} online"
    lost = f", {states['lost']} LOST" if states["lost"] else ""
    lines = [one_line(f"{reading.cluster['name']}  {serves}  nodes {counts}{lost}")]
    if reading.alerts:
        more = f" (and {len(reading.alerts) - 1} more)" if len(reading.alerts) > 1 else ""
        lines.append(one_line(f"ALERT: {reading.alerts[0]['text']}{more}"))
    if sample is None:
        return [*lines, "no metrics yet: no coordinator has reported"]
    simulated = "  SIMULATED" if sample["simulated"] else ""
    lines.append(
        f"{number(sample['output_tokens_per_s'])} tok/s out  "
        f"{number(sample['prompt_tokens_per_s'])} in  "
        f"{sample['running']} running {sample['waiting']} waiting{simulated}"
    )
    lines.append(
        f"TTFT {duration(sample['ttft_p50_s'])} p95 {duration(sample['ttft_p95_s'])}  "
        f"TPOT {duration(sample['tpot_p50_s'])} p95 {duration(sample['tpot_p95_s'])}  "
        f"at {moment(sample['at'])[11:]}"
    )
    if reading.bottleneck is not None:
        lines.append(one_line(f"limit: {reading.bottleneck['headline']}"))
    return lines


def _nodes(reading: Reading) -> list[str]:
    """Lost nodes first, then the busiest."""
    samples = {} if reading.metrics is None else reading.metrics["nodes"]
    assignments = [] if reading.deployment is None else reading.deployment["assignments"]
    layers = {one["node_name"]: f"[{one['first']},{one['end']})" for one in assignments}
    rows = [{**samples.get(node["name"], {}), **node} for node in reading.nodes]
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

    def load(row: Row) -> float:
        sent = row["urgent_bytes_per_s"] + row["bulk_bytes_per_s"]
        room = row["measured_bytes_per_s"] or row["planned_bytes_per_s"]
        return sent / room if room else 0.0

    chosen = sorted(rows, key=lambda one: (not (one["stalled"] or one["slow"]), -load(one)))
    cells: Cells = {
        "LINK": lambda one: f"{one['source']} > {one['target']}",
        "FULL": lambda one: percent(load(one)),
        "SENDS": lambda one: bandwidth(one["urgent_bytes_per_s"] + one["bulk_bytes_per_s"]),
        "OF": lambda one: bandwidth(one["measured_bytes_per_s"] or one["planned_bytes_per_s"]),
        "RTT": "rtt_s",
        "STATE": lambda one: "STALLED" if one["stalled"] else "SLOW" if one["slow"] else "",
    }
    return rows_table(cells, chosen[:_MOST_LINKS]).split("\n") if chosen else []


def _fitted(lines: list[str], room: int) -> list[str]:
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"… and {len(lines) - room + 1} more nodes"]

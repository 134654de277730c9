"""One frame of `helixweb top`, as lines that fit the terminal."""

from collections.abc import Sequence

from helixweb.client import Row
from helixweb.command_line.output import (
    Cells,
    bandwidth,
    cut,
    duration,
    moment,
    number,
    one_line,
    percent,
    rows_table,
)
from helixweb.command_line.reading import Reading

_BAR = 10
_MOST_LINKS = 6


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
    states, sample, deployment = reading.states, reading.sample, reading.deployment
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
    if reading.finding is not None:
        lines.append(one_line(f"limit: {reading.finding['headline']}"))
    return lines


def _nodes(reading: Reading) -> list[str]:
    """Lost nodes first, then the busiest."""
    samples = {} if reading.sample is None else reading.sample["nodes"]
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

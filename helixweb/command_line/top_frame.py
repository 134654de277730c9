"""One frame of `helixweb top`, as lines that fit the terminal."""

from collections.abc import Sequence

from helixweb.client import Row
from helixweb.command_line.output import (
    bandwidth,
    cut,
    duration,
    moment,
    number,
    one_line,
    percent,
    table,
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
    layers = {} if reading.deployment is None else _layers(reading.deployment)

    def order(node: Row) -> tuple[bool, float, str]:
        busy = samples[node["name"]]["busy_ratio"] if node["name"] in samples else None
        return (node["state"] != "lost", -(busy or 0.0), node["name"])

    rows = []
    for node in sorted(reading.nodes, key=order):
        name = node["name"]
        sample = samples.get(name)
        busy = sample["busy_ratio"] if sample else None
        rows.append((
            name, node["state"], _bar(busy), percent(busy),
            number(sample["tokens_per_s"] if sample else None),
            _kv(sample), sample["sequences"] if sample else None, layers.get(name),
        ))  # fmt: skip
    return table(("NODE", "STATE", "", "BUSY", "TOK/S", "KV", "SEQ", "LAYERS"), rows).split("\n")


def _layers(deployment: Row) -> dict[str, str]:
    return {one["node_name"]: f"[{one['first']},{one['end']})" for one in deployment["assignments"]}


def _kv(sample: Row | None) -> str:
    if sample is None or not sample["kv_total_pages"]:
        return percent(None)
    return percent((sample["kv_used_pages"] or 0) / sample["kv_total_pages"])


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
    told = [
        (
            f"{one['source']} > {one['target']}", percent(load(one)),
            bandwidth(one["urgent_bytes_per_s"] + one["bulk_bytes_per_s"]),
            bandwidth(one["measured_bytes_per_s"] or one["planned_bytes_per_s"]),
            duration(one["rtt_s"]), "STALLED" if one["stalled"] else "SLOW" if one["slow"] else "",
        )
        for one in chosen[:_MOST_LINKS]
    ]  # fmt: skip
    if not told:
        return []
    return table(("LINK", "FULL", "SENDS", "OF", "RTT", "STATE"), told).split("\n")


def _fitted(lines: list[str], room: int) -> list[str]:
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"… and {len(lines) - room + 1} more nodes"]

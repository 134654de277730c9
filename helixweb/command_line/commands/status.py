"""`helixweb status`: what runs, what limits it, and what needs a look."""

from collections import Counter

from helixweb.client import NotFound, Rows
from helixweb.command_line.command import command
from helixweb.command_line.commands.serving import fetched
from helixweb.command_line.output import duration, number, pairs
from helixweb.command_line.resolve import cluster_named, in_service
from helixweb.command_line.session import Row, Session

MOST_ALERTS = 20


@command()
def status(site: Session, cluster: str | None = None) -> None:
    """What runs, what limits it, and what needs a look.

    cluster: else all
    """
    named = [cluster_named(site, cluster)] if cluster is not None else site.client.clusters.all()
    readings = [read_cluster(site, one) for one in named]
    text = "\n\n".join(summary(one, most=10) for one in readings)
    site.show(readings, text or "there is no cluster yet")


def summary(reading: Row, *, most: int) -> str:
    """A line for each fact, at most so many of a kind."""
    states = Counter(node["state"] for node in reading["nodes"])
    deployment, sample = reading["deployment"], reading["metrics"]
    counts = ", ".join(f"{states[word]} {word}" for word in ("online", "lost", "declared"))
    rows: list[tuple[str, object]] = [
        ("cluster", reading["cluster"]["name"]),
        ("nodes", f"{len(reading['nodes'])}: {counts}"),
    ]
    faults = [f"{part} {state}" for part, state in reading["site"].items() if state != "ok"]
    if faults:
        remedy = "`helixweb doctor` on its machine says what to do"
        rows.append(("SITE", f"{', '.join(faults)}; {remedy}"))
    if states["lost"]:
        lost = [node["name"] for node in reading["nodes"] if node["state"] == "lost"]
        rows.append(("lost", lost[:most] + (["…"] if len(lost) > most else [])))
    if deployment is None:
        rows.append(("serves", "nothing"))
    else:
        line = f"deployment {deployment['id']}: {deployment['status']}"
        rows.append(("serves", f"{deployment['model_name']}, {line}"))
        if deployment["message"]:
            rows.append(("says", deployment["message"]))
        rows += [
            ("fetches", f"{one['node_name']}: {fetched(one)}")
            for one in deployment["assignments"]
            if one["fetch"] is not None and one["phase"] == "loading"
        ][:most]
    if failed := reading["failed_deployment"]:
        why = failed["message"] or "see its nodes"
        rows.append(("failed", f"deployment {failed['id']}: {why}"))
    if reading["reach"] is None:
        rows.append(("links", "not known: the site is of an earlier release than this command"))
    else:
        rows += [("cut", cut["remedy"]) for cut in reading["reach"]["cut"][:most]]
        weights_cut = reading["reach"].get("weights_cut", [])  # not of earlier releases
        rows += [("warning", cut["remedy"]) for cut in weights_cut[:most]]
    rows += [("ALERT", f"{one['severity']}: {one['text']}") for one in reading["alerts"][:most]]
    if sample is not None:
        simulated = " (simulated)" if sample["simulated"] else ""
        rows += [
            ("output", f"{number(sample['output_tokens_per_s'])} tokens/s{simulated}"),
            ("input", f"{number(sample['prompt_tokens_per_s'])} tokens/s"),
            ("requests", f"{sample['running']} running, {sample['waiting']} waiting"),
            *((word.upper(), _latencies(sample, word)) for word in ("ttft", "tpot")),
        ]
    if reading["bottleneck"] is not None:
        rows.append(("limit", reading["bottleneck"]["headline"]))
    return pairs(rows)


def _latencies(sample: Row, word: str) -> str:
    return f"p50 {duration(sample[f'{word}_p50_s'])}, p95 {duration(sample[f'{word}_p95_s'])}"


def read_cluster(site: Session, cluster: Row) -> Row:
    """Rows of one cluster by what they are; None where the site has no data. Raises ClientError."""
    client, key = site.client, cluster["id"]
    deployment = in_service(site, key)
    newest = next(client.deployments.all(cluster=key, ordering=["-id"], limit=1), None)
    return {
        "site": client.checks(),
        "cluster": cluster,
        "nodes": list(client.nodes.all(cluster=key)),
        "coordinators": list(client.coordinators.all(cluster=key)),
        "deployment": deployment,
        "failed_deployment": newest if newest and newest["status"] == "failed" else None,
        "alerts": list(client.alerts.all(cluster=key, state="firing", limit=MOST_ALERTS)),
        "metrics": _if_any(client.metrics, "latest", cluster=key),
        "bottleneck": _if_any(client.clusters, "bottleneck", key),
        "links": client.deployments.read("links", deployment["id"])["links"] if deployment else [],
        "reach": _if_any(client.clusters, "reach", key),  # earlier releases lack it
    }


def _if_any(rows: Rows, action: str, key: int | None = None, **query: int) -> Row | None:
    """The answer, or None if the server has none (404)."""
    try:
        row: Row = rows.read(action, key, **query)
    except NotFound:
        return None
    return row

"""`helixweb status`: what runs, what limits it, and what needs a look."""

from argparse import Namespace
from dataclasses import asdict

from helixweb.command_line.command import argument, command
from helixweb.command_line.fetches import fetched
from helixweb.command_line.output import duration, number, pairs
from helixweb.command_line.reading import Reading, read_cluster
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session


@command(argument("cluster", nargs="?", help="else all", complete="clusters"))
def status(site: Session, arguments: Namespace) -> None:
    if arguments.cluster is None:
        clusters = list(site.client.clusters.all())
    else:
        clusters = [cluster_named(site.client, arguments.cluster)]
    readings = [read_cluster(site.client, one) for one in clusters]
    text = "\n\n".join(_text(one) for one in readings) or "there is no cluster yet"
    site.show([asdict(one) for one in readings], text)


def _text(reading: Reading) -> str:
    states = reading.states
    counts = ", ".join(f"{states[word]} {word}" for word in ("online", "lost", "declared"))
    rows: list[tuple[str, object]] = [
        ("cluster", reading.cluster["name"]),
        ("nodes", f"{len(reading.nodes)}: {counts}"),
    ]
    if states["lost"]:
        lost = [node["name"] for node in reading.nodes if node["state"] == "lost"]
        rows.append(("lost", lost[:10] + (["…"] if len(lost) > 10 else [])))
    deployment = reading.deployment
    if deployment is None:
        rows.append(("serves", "nothing"))
    else:
        number_, model = deployment["id"], deployment["model_name"]
        rows.append(("serves", f"{model}, deployment {number_}: {deployment['status']}"))
        if deployment["message"]:
            rows.append(("says", deployment["message"]))
        rows += [
            ("fetches", f"{one['node_name']}: {fetched(one)}")
            for one in deployment["assignments"]
            if one["fetch"] is not None and one["phase"] == "loading"
        ][:10]
    if reading.failed_deployment is not None:
        failed = reading.failed_deployment
        rows.append(
            ("failed", f"deployment {failed['id']}: {failed['message'] or 'see its nodes'}")
        )
    if reading.reach is None:
        rows.append(("links", "not known: the site is of an earlier release than this command"))
    else:
        rows += [("cut", cut["remedy"]) for cut in reading.reach["cut"][:10]]
        weights_cut = reading.reach.get("weights_cut", [])  # not of earlier releases
        rows += [("warning", cut["remedy"]) for cut in weights_cut[:10]]
    rows += [("ALERT", f"{one['severity']}: {one['text']}") for one in reading.alerts]
    sample = reading.metrics
    if sample is not None:
        simulated = " (simulated)" if sample["simulated"] else ""
        rows += [
            ("output", f"{number(sample['output_tokens_per_s'])} tokens/s{simulated}"),
            ("requests", f"{sample['running']} running, {sample['waiting']} waiting"),
            ("TTFT", f"p50 {duration(sample['ttft_p50_s'])}, p95 {duration(sample['ttft_p95_s'])}"),
            ("TPOT", f"p50 {duration(sample['tpot_p50_s'])}, p95 {duration(sample['tpot_p95_s'])}"),
        ]
    if reading.bottleneck is not None:
        rows.append(("limit", reading.bottleneck["headline"]))
    return pairs(rows)

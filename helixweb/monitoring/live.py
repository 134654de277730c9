"""What open pages hear of a sample: one event, written once for all of them."""

import dataclasses

from helixweb.common import events
from helixweb.monitoring.load import find
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import serving_of
from helixweb.monitoring.services import sample_document

# What a sample says of its nodes goes with every event, but of so many only now and then.
MANY_NODES = 64
MANY_NODES_EVERY_S = 5
# Of the rates of seconds, no more can be seen.
FINDING_EVERY_S = 2


def announce(sample: MetricSample) -> None:
    """Tell pages of a sample that was just stored, within its transaction.

    `nodes` is null where they are left out, `finding` what limits now; it is not there between.
    """
    document = sample_document(sample)
    if len(sample.nodes) > MANY_NODES and sample.second % MANY_NODES_EVERY_S:
        document["nodes"] = None
    if sample.second % FINDING_EVERY_S == 0:
        serving = serving_of(sample.cluster, sample)
        finding = find(sample.cluster, serving, sample, now=sample.at)
        document["finding"] = None if finding is None else dataclasses.asdict(finding)
    events.emit(f"metrics:{sample.cluster_id}", "metrics", document)

"""However many nodes, plans and samples there are, a page takes the same number of queries."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helixweb.deployment.models import Deployment, NodeAssignment
from helixweb.inventory.models import Cluster, LanguageModel, Link, Node, NodeTag, Profile
from helixweb.monitoring.models import MetricSample, TracedRequest
from helixweb.monitoring.traces import record_traces
from helixweb.planning.models import Incumbent, Plan, PlanRun
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.process_doubles import FakeCluster
from tests.helixweb.request_traces import made_up_trace

PAGES = (
    "/",
    "/clusters/",
    "/clusters/new",
    "/clusters/{cluster}/",
    "/clusters/{cluster}/edit",
    "/clusters/{cluster}/delete",
    "/clusters/{cluster}/network/",
    "/clusters/{cluster}/links/new",
    "/clusters/{cluster}/links/{link}/edit",
    "/nodes/",
    "/nodes/nodes.csv",
    "/clusters/{cluster}/nodes/{node}/",
    "/clusters/{cluster}/nodes/{node}/edit",
    "/models/",
    "/models/{model}/",
    "/profiles/",
    "/profiles/{profile}/",
    "/changes/",
    "/plans/",
    "/plans/new?cluster={cluster}",
    "/plans/new/fit?cluster={cluster}&model={model}",
    "/plans/{run}/",
    "/plans/{run}/incumbents/{incumbent}/",
    "/plans/by-id/{plan}/what-if",
    "/plans/by-id/{plan}/replan",
    "/plans/compare?plan={plan}&plan={other}",
    "/plans/mixes/new/{cluster}",
    "/settings/jobs/",
    "/deployments/",
    "/deployments/{deployment}/",
    "/deployments/new?plan={plan}",
    "/monitor/?cluster={cluster}",
    "/requests/",
    "/requests/{request}/",
    "/playground/",
)
API = (
    "/api/v1/clusters/", "/api/v1/nodes/", "/api/v1/plans/", "/api/v1/plan-runs/",
    "/api/v1/deployments/", "/api/v1/requests/", "/api/v1/profiles/", "/api/v1/links/",
    "/api/v1/metrics/latest/?cluster={cluster}", "/api/v1/clusters/{cluster}/metrics/",
    "/api/v1/clusters/{cluster}/bottleneck/",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def site(joined: FakeCluster, cluster: Cluster, user: Any) -> Callable[[], dict[str, Any]]:
    """A cluster that serves, and the ids that addresses need."""
    row = joined.deploy()
    joined.ready()
    joined.coordinator.report()
    run = PlanRun.objects.create(
        cluster=cluster, model=joined.model, problem=joined.plan.problem, options={},
        status="succeeded",
    )  # fmt: skip
    Plan.unscoped.filter(pk=joined.plan.pk).update(run=run)
    made = Incumbent.objects.create(
        run=run, attempt=1, elapsed_s=1.0, flow_tokens_per_s=1.0, placer="milp",
        placement=joined.plan.document["placement"],
    )  # fmt: skip
    other = Plan.unscoped.defer(None).get(pk=joined.plan.pk)
    other.pk = other.run_id = None
    other.save()
    record_traces(cluster.pk, [made_up_trace(1)])

    def ids() -> dict[str, Any]:
        return {
            "cluster": cluster.pk, "deployment": row.pk, "run": run.pk, "plan": joined.plan.pk,
            "other": other.pk, "incumbent": made.pk, "model": joined.model.pk,
            "node": Node.unscoped.get(name="tower").pk, "link": Link.unscoped.earliest("pk").pk,
            "profile": Profile.unscoped.earliest("pk").pk,
            "request": TracedRequest.unscoped.latest("pk").request,
        }  # fmt: skip

    return ids


def grow(cluster: Cluster, nodes: int) -> None:
    """Nodes with all that a node can have, plans, samples, traces, and other clusters."""
    now = timezone.now()
    row = Deployment.unscoped.get(cluster=cluster)
    made = Node.objects.bulk_create(
        [
            Node(
                cluster=cluster, name=f"more-{number}", region="home", profile_name="big",
                joined_at=now, last_seen_at=now,
            )
            for number in range(nodes)
        ]
    )  # fmt: skip
    NodeTag.objects.bulk_create([NodeTag(node=node, name="rack") for node in made])
    seed = NodeAssignment.unscoped.filter(deployment=row).first()
    assert seed is not None
    Link.objects.bulk_create(
        [
            Link(
                cluster=cluster, source=node.name, target="tower", bandwidth_bytes_per_s=1e9,
                latency_s=0.001,
            )
            for node in made
        ]
    )  # fmt: skip
    plan = row.plan
    for number in range(nodes // 4):
        run = PlanRun.objects.create(
            cluster=cluster, model=plan.model, problem=plan.problem, options={}, status="succeeded"
        )
        Plan.objects.create(
            cluster=cluster, model=plan.model, run=run, document=plan.document,
            problem=plan.problem, flow_tokens_per_s=1.0, upper_bound_tokens_per_s=1.0, hops=1.0,
        )  # fmt: skip
        Cluster.objects.create(name=f"other-{number}")
    MetricSample.objects.bulk_create(
        [bare_sample(cluster, now - timedelta(seconds=age), output=1.0) for age in range(1, nodes)]
    )
    record_traces(cluster.pk, [made_up_trace(number) for number in range(2, nodes)])


def queries_of(browser: Client, address: str) -> int:
    """Of the second answer: the first fills what is kept."""
    assert browser.get(address).status_code == 200, address
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(address).status_code == 200, address
    return len(captured)


@pytest.mark.slow
def test_a_large_site_takes_as_many_queries_for_every_page(
    site: Callable[[], dict[str, Any]], cluster: Cluster, browser: Client
) -> None:
    grow(cluster, 8)
    addresses = [page.format(**site()) for page in (*PAGES, *API)]
    few = {address: queries_of(browser, address) for address in addresses}
    Node.unscoped.filter(name__startswith="more-").delete()
    Cluster.unscoped.filter(name__startswith="other-").delete()
    MetricSample.unscoped.filter(nodes={}).delete()
    Link.unscoped.filter(source__startswith="more-").delete()
    grow(cluster, 80)  # more than a page has, and than charts draw one by one
    many = {address: queries_of(browser, address) for address in addresses}
    assert many == few
    assert LanguageModel.objects.count() == 1

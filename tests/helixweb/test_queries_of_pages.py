"""However many nodes, plans and samples there are, a page takes the same number of queries, and its
parts find in the answers what they take out of them."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from helixweb.inventory.models import Cluster, Link, Node, NodeTag
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.services import record_traces
from helixweb.planning.models import Plan, PlanRun
from tests.e2e.pages import PAGES
from tests.helixweb.everything import make_world
from tests.helixweb.looking import answered, browser_of, elements, statements
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.request_traces import made_up_trace

OTHERS = (
    "/plans/new?cluster={cluster}", "/plans/new/fit?cluster={cluster}&model={model}",
    "/nodes/nodes.csv",
    "/api/v1/clusters/", "/api/v1/nodes/", "/api/v1/plans/", "/api/v1/plan-runs/",
    "/api/v1/deployments/", "/api/v1/requests/", "/api/v1/profiles/", "/api/v1/links/",
    "/api/v1/metrics/latest/?cluster={cluster}", "/api/v1/clusters/{cluster}/metrics/",
    "/api/v1/clusters/{cluster}/bottleneck/",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("time_stands_still")


def grow(cluster: Cluster, plan: Plan, nodes: int) -> None:
    """Nodes with all that a node can have, plans, samples, traces, and other clusters."""
    now = timezone.now()
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
    Link.objects.bulk_create(
        [
            Link(
                cluster=cluster, source=node.name, target="tower", bandwidth_bytes_per_s=1e9,
                latency_s=0.001,
            )
            for node in made
        ]
    )  # fmt: skip
    for number in range(nodes // 4):
        run = PlanRun.objects.create(
            cluster=cluster, model=plan.model, problem=plan.problem, options={}, status="succeeded"
        )
        Plan.objects.create(
            cluster=cluster, model=plan.model, run=run, document=plan.document,
            problem=plan.problem, flow_tokens_per_s=1.0, upper_bound_tokens_per_s=1.0, hops=1.0,
        )  # fmt: skip
        Cluster.objects.create(name=f"other-{cluster.pk}-{number}")
    MetricSample.unscoped.filter(cluster=cluster).delete()
    MetricSample.objects.bulk_create(
        [bare_sample(cluster, now - timedelta(seconds=age), output=1.0) for age in range(1, nodes)]
    )
    first = 1000 * cluster.pk + 100
    record_traces(cluster.pk, [made_up_trace(first + number) for number in range(2, nodes)])


def queries_of(browser: Client, address: str, expected: int | None = None) -> int:
    """Of the second answer if the first took another number: it fills what is kept."""
    first = len(statements(lambda: answered(browser.get(address), 200)))
    return first if first == expected else len(statements(lambda: browser.get(address)))


@pytest.mark.slow
@pytest.mark.django_db
def test_a_large_site_takes_as_many_queries_for_every_page() -> None:
    ids = make_world()
    plan = Plan.unscoped.get(pk=ids["plan"])
    clusters = [Cluster.unscoped.get(pk=ids[name]) for name in ("cluster", "spare")]
    browser = browser_of(get_user_model().objects.get(username=ids["user"]))
    Node.unscoped.filter(cluster=ids["many"]).delete()  # else lists are as long as a page
    for cluster in clusters:
        grow(cluster, plan, 8)
    addresses = [page.format(**ids) for page in (*PAGES, *OTHERS)]
    few = {address: queries_of(browser, address) for address in addresses}
    Node.unscoped.filter(name__startswith="more-").delete()
    Cluster.unscoped.filter(name__startswith="other-").delete()
    Link.unscoped.filter(source__startswith="more-").delete()
    for cluster in clusters:
        grow(cluster, plan, 80)  # more than a page has, and than charts draw one by one
    many = {address: queries_of(browser, address, few[address]) for address in addresses}
    assert {one: (few[one], many[one]) for one in few if many[one] != few[one]} == {}


def fetched_by(html: str) -> Iterator[tuple[str, set[str]]]:
    """Addresses that elements of a page fetch, and the ids that they select out of the answers."""
    for _, values in elements(html):
        selectors = f"{values.get('hx-select', '')},{values.get('hx-select-oob', '')}"
        ids = set(re.findall(r"#([a-z-]+)", selectors))
        if ids and "hx-get" in values:
            yield values["hx-get"], ids


def test_every_part_that_fetches_itself_is_in_the_answer(user: Any, browser: Client) -> None:
    world = make_world()
    browser.force_login(user)
    seen: set[str] = set()
    missing: set[tuple[str, str]] = set()
    for page in dict.fromkeys(page.format(**world) for page in PAGES):
        html = answered(browser.get(page), 200).content.decode()
        for address, ids in fetched_by(html):
            asked = browser.get(address, headers={"HX-Request": "true"})
            part = answered(asked, 200).content.decode()
            missing |= {(address, name) for name in ids if f'id="{name}"' not in part}
            seen |= ids
    assert {"measuring", "live-part", "deployment-state", "overview-now", "nodes-count"} <= seen
    assert missing == set()

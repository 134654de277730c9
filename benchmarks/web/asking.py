"""Asks a large site for its pages, as a user who is logged in. Import it after `open_site`."""

from collections.abc import Iterator
from datetime import datetime

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import helixweb.asgi  # noqa: F401 - what a web process loads, and how it collects garbage
from benchmarks.web.rows import LARGE, user
from helixweb.inventory.models import Cluster, LanguageModel, Node, Profile
from helixweb.monitoring.models import MetricSample, TracedRequest
from helixweb.planning.models import Incumbent, Plan, PlanRun

PAGES = (
    "/", "/clusters/", "/clusters/new", "/clusters/import", "/clusters/{cluster}/",
    "/clusters/{cluster}/edit", "/clusters/{cluster}/network/",
    "/clusters/{cluster}/network/?show=latency",
    "/clusters/{cluster}/network/?from=region-0&to=region-1", "/clusters/{cluster}/links/new",
    "/clusters/{cluster}/shared-bandwidths/new", "/clusters/{cluster}/profiles/new", "/nodes/",
    "/nodes/?page=9&sort=-seen", "/nodes/?state=online&tag=rack-3",
    "/clusters/{cluster}/nodes/{node}/", "/clusters/{cluster}/nodes/{node}/edit",
    "/models/", "/models/{model}/", "/profiles/", "/profiles/{profile}/", "/changes/",
    "/plans/", "/plans/?page=100", "/plans/?cluster={cluster}", "/plans/new",
    "/plans/new?cluster={cluster}", "/plans/new/fit?cluster={cluster}&model={model}",
    "/plans/{run}/", "/plans/{run}/incumbents/{incumbent}/", "/plans/by-id/{plan}/what-if",
    "/plans/by-id/{plan}/replan", "/plans/compare?plan={plan}&plan={other}",
    "/plans/mixes/new/{cluster}", "/deployments/", "/deployments/{deployment}/",
    "/deployments/new?plan={plan}", "/monitor/?cluster={cluster}",
    "/monitor/?cluster={cluster}&range=1h", "/monitor/?cluster={small}&range=24h",
    "/monitor/?cluster={small}&range=7d", "/monitor/chart/heat/?cluster={cluster}",
    "/monitor/chart/flow-measured/?cluster={cluster}", "/requests/", "/requests/?page=300",
    "/requests/?order=-e2e_s", "/requests/?node=node-5", "/requests/{request}/", "/playground/",
    "/settings/", "/settings/api-keys/", "/settings/join-tokens/", "/settings/jobs/",
    "/settings/about/", "/api/v1/nodes/", "/api/v1/plan-runs/", "/api/v1/plans/",
    "/api/v1/requests/", "/api/v1/metrics/latest/?cluster={cluster}",
    "/api/v1/clusters/{cluster}/bottleneck/", "/api/v1/clusters/{cluster}/metrics/",
)  # fmt: skip


def addresses() -> Iterator[str]:
    """Of every page, with the ids of this site's rows."""
    ids = ids_of_rows()
    return (page.format(**ids) for page in PAGES)


def ids_of_rows() -> dict[str, int | str]:
    """What the addresses of pages name."""
    plan = Plan.unscoped.filter(deployments__isnull=False).defer("problem", "document").get()
    cluster = Cluster.unscoped.get(name=LARGE)
    run = PlanRun.unscoped.defer("problem").get(pk=plan.run_id)
    return {
        "cluster": cluster.pk,
        "small": Cluster.unscoped.filter(name__startswith="small").earliest("pk").pk,
        "node": Node.unscoped.filter(assignments__isnull=False).earliest("pk").pk,
        "model": LanguageModel.objects.earliest("pk").pk,
        "profile": Profile.unscoped.filter(cluster=cluster).earliest("pk").pk,
        "run": run.pk,
        "incumbent": Incumbent.unscoped.filter(run=run).latest("pk").pk,
        "plan": plan.pk,
        "other": Plan.unscoped.filter(cluster=cluster).defer("problem", "document").first().pk,
        "deployment": plan.deployments.get().pk,
        "request": TracedRequest.unscoped.earliest("pk").request,
    }


def newest_moment() -> datetime:
    """When the newest sample of the large cluster was taken: `now` for the pages."""
    return MetricSample.unscoped.filter(cluster__name=LARGE).values_list("at", flat=True).last()


class Browser:
    """Logged in."""

    def __init__(self) -> None:
        self._client = Client(HTTP_HOST="127.0.0.1")
        self._client.force_login(user())

    @property
    def session(self) -> str:
        """The cookie that shows who it is."""
        return self._client.cookies["sessionid"].value

    def size(self, address: str) -> int:
        """Bytes of the answer, which must be a success."""
        answer = self._client.get(address)
        if answer.status_code != 200:
            raise SystemExit(f"{address} was answered {answer.status_code}")
        return len(answer.content)

    def queries(self, address: str) -> int:
        """How many an answer takes."""
        with CaptureQueriesContext(connection) as captured:
            self.size(address)
        return len(captured)

"""Addresses that an earlier version stored and that nobody can dial."""

from importlib import import_module

from django.apps import apps
from django.utils import timezone

from helixweb.deployment.models import Deployment, Status
from helixweb.deployment.services import deploying
from helixweb.inventory.models import Cluster, Node, NodeState
from tests.helixweb.looking import fresh
from tests.helixweb.process_doubles import FakeCluster

MIGRATION = import_module(
    "helixweb.deployment.migrations.0002_since_0_1_0"
).refuse_unusable_addresses


def test_an_upgrade_revokes_unusable_addresses(joined: FakeCluster, cluster: Cluster) -> None:
    row = joined.deploy()
    MIGRATION(apps, None)
    assert Deployment.unscoped.get(pk=row.pk).status == row.status
    bad, *others = joined.agents.values()
    Node.unscoped.filter(pk=bad.row.pk).update(data_endpoint="tcp://_bad:7000")
    row.serving_plan["peers"][0]["endpoint"] = "tcp://_bad:7000"
    row.save()
    MIGRATION(apps, None)
    assert fresh(row).status == Status.STOPPED
    assert "tcp://_bad:7000, which cannot be dialled" in row.message
    assert bad.row.state is NodeState.DECLARED
    assert bad.http.get("/api/v1/agent/desired").status_code == 401
    for agent in others:
        assert agent.row.state is NodeState.ONLINE
        assert agent.desired().generation == row.generation
    deploying.follow_addresses(cluster, now=timezone.now())

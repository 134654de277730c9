"""A request to each operation that a site with something of everything accepts.

By lot alone hardly a body names a row that there is, an end after its beginning and nodes of the
cluster that it speaks of: made-up requests start from these, so that they get further than to the
first complaint.
"""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from helixweb.deployment.models import Deployment
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.services.deploying import deploy, pause
from helixweb.inventory.models import Cluster, LanguageModel, ProfileVersion
from helixweb.inventory.services import joining, profile_versions
from tests.helixweb.conftest import TINY_PROBLEM

ENDED = "2099-01-31T12:00:00Z"
LINK = {"bandwidth_bytes_per_s": 1e7, "latency_s": 0.01}
IDENTITY = {
    "data_endpoint": "tcp://10.0.0.7:7000", "data_public_key": "x" * 40, "version": "0.1.0",
    "hardware": {
        "hostname": "attic", "cpu_count": 4, "memory_bytes": 2**33, "gpus": [],
        "memory_budget_bytes": 2**32, "relative_speed": 1.0, "emulated": False,
    },
}  # fmt: skip


class Accepted:
    """Bodies, queries and path parameters by operation; makes the rows that the world lacks."""

    def __init__(self, world: Mapping[str, Any], documents: Mapping[str, Any]) -> None:
        """`documents`: an exported `profile` and `inventory`."""
        users = get_user_model().objects
        self.admin = users.get(username=world["user"])
        self.other = users.create_user(f"{world['name']}-other")
        for _ in range(2):
            Client().force_login(self.admin)
        spare = Cluster.unscoped.get(pk=world["spare"])
        self.with_heads = self._model_with_heads(spare)
        serves = Deployment.unscoped.get(pk=world["deployment"])
        again = deploy(serves.plan, user=self.admin, options=DeployOptions(), now=timezone.now())
        pause(Deployment.unscoped.get(pk=world["instances"]), user=self.admin, now=timezone.now())
        token = joining.create_join_token(spare, "node", self.admin)
        self.bodies = self._bodies(world, documents) | {
            "POST agent/register": {
                "join_token": token.secret, "role": "node", "name": "attic", "region": "home",
                "node_uuid": "2b0a9d53-5f0b-4c0e-9d5c-0b6f2d3b8f11", **IDENTITY,
            },
            "PUT agent/identity": IDENTITY,
        }  # fmt: skip
        self._add_edits()
        self.queries = {"GET plans/compare/": {"plan": [world["plan"], world["second_plan"]]}}
        self.rows: dict[str, dict[str, Any]] = {
            "POST plan-runs/{id}/adopt/": {"id": world["replan_run"]},
            "GET plan-runs/{id}/replan/": {"id": world["replan_run"]},
            "POST plan-runs/{id}/accept/": {"id": world["running"]},
            "POST plan-runs/{id}/cancel/": {"id": world["running"]},
            "POST plan-runs/{id}/extend/": {"id": world["run"]},
            "GET clusters/{id}/bottleneck/": {"id": world["instances_cluster"]},
            "POST plans/{id}/explanation/": {"id": world["second_plan"]},
            "PATCH nodes/{id}/": {"id": world["spare_node"]},
            "GET plans/{id}/explanation/": {"id": world["plan"]},
            "POST deployments/{id}/weights/": {"id": world["failing"]},
            "POST deployments/{id}/resume/": {"id": world["instances"]},
            "POST deployments/{id}/roll-back/": {"id": again.pk},
            "DELETE profile-versions/{id}/": {"id": self._unused_version(spare)},
            "DELETE join-tokens/{id}/": {"id": token.pk},
            "DELETE models/{id}/": {"id": world["own_model"]},
            "PATCH users/{id}/": {"id": self.other.pk},
            "POST nodes/{id}/revoke-credential/": {"id": world["node"]},
        }

    def _model_with_heads(self, cluster: Cluster) -> LanguageModel:
        """One that the cluster's profiles were measured for, too."""
        model = LanguageModel.objects.create(
            name="with-heads", num_layers=4, activation_bytes_per_token=256.0, token_bytes=4.0,
            bytes_per_layer=1e6, num_heads=4, num_kv_heads=2,
        )  # fmt: skip
        for profile in list(cluster.profiles.all()):
            document = profile_versions.export_profile(profile) | {"model": model.name}
            profile_versions.import_profile(cluster, document)
        return model

    def _unused_version(self, cluster: Cluster) -> int:
        """The first of two that were imported."""
        profile = cluster.profiles.get(name="small", model__name="tiny-llama")
        document = profile_versions.export_profile(profile)
        for _ in range(2):
            document["profile"]["vram_bytes"] *= 2
            profile_versions.import_profile(cluster, document)
        return int(ProfileVersion.unscoped.filter(profile=profile).earliest("number").pk)

    def _bodies(self, world: Mapping[str, Any], documents: Mapping[str, Any]) -> dict[str, Any]:
        cluster, model = {"cluster": world["spare"]}, {"model": world["model"]}
        heads = {"model": self.with_heads.pk}
        return {
            "POST alert-channels/": {
                **cluster, "name": "pager", "way": "webhook", "url": "https://example.org/hook",
                "enabled": True, "send_resolved": True, "least_severity": "warning",
            },
            "POST alert-rules/": {
                **cluster, "name": "first tokens", "kind": "ttft_p95", "threshold": 5.0,
                "clears_at": 4.0, "for_s": 60.0, "resolve_s": 60.0, "severity": "critical",
                "enabled": True, "channels": [world["alert_channel"]],
            },
            "POST alert-silences/": {
                **cluster, "rule": world["alert_rule"], "subject": "mini", "comment": "uplink",
                "starts_at": "2026-01-31T12:00:00Z", "ends_at": ENDED,
            },
            "POST alerts/{id}/acknowledge/": {"comment": "seen"},
            "POST api-keys/": {
                "name": "of a script", "scopes": ["read"], "networks": ["10.0.0.0/8"],
                "requests_per_min": 60, "expires_at": ENDED,
            },
            "POST clusters/": {
                "name": "garage", "coordinator_region": "home", "mean_prompt_tokens": 64.0,
                "mean_output_tokens": 32.0,
            },
            "POST clusters/import/": {"name": "imported", "problem": TINY_PROBLEM},
            "POST deployments/": {"plan": world["plan"], "kv_high_water": 0.8},
            "POST deployments/{id}/weights/": {"held": True},
            "POST drains/": {"node": world["node"]},
            "POST grants/": {"user": self.other.username, "role": "operator", **cluster},
            "POST groups/": {"name": "day shift", "members": [self.other.username]},
            "PATCH groups/{id}/": {"members": [self.other.username]},
            "POST import/": documents["inventory"],
            "POST join-tokens/": {**cluster, "role": "coordinator"},
            "POST links/": {**cluster, "source": "laptop", "target": "mini", **LINK},
            "POST region-links/": {**cluster, "source": "away", "target": "away", **LINK},
            "POST model-mixes/": {
                **cluster, "models": [{**model, "weight": 1.0}, {**heads, "weight": 2.0}],
                "options": {"time_limit_s": 1.0},
            },
            "POST models/": {
                "name": "another", "num_layers": 4, "activation_bytes_per_token": 256.0,
                "token_bytes": 4.0, "bytes_per_layer": 1e6, "num_heads": 4, "num_kv_heads": 2,
            },
            "POST nodes/": {**cluster, "name": "attic", "region": "home", "profile_name": "small"},
            "POST nodes/bulk/": {
                "nodes": [world["spare_node"]], "region": "away", "add_tags": ["rack-1"],
            },
            "POST plan-runs/": {**cluster, **model, "options": {"time_limit_s": 1.0}},
            "POST plan-runs/{id}/adopt/": {"point": 0},
            "POST plan-runs/{id}/extend/": {"seconds": 5.0},
            "POST plans/{id}/explanation/": {"search_s": 1.0},
            "POST plans/{id}/replan/": {"budget_bytes": 1e9},
            "POST plans/{id}/what-if/": {"removed": ["mini"]},
            "POST profiles/": {
                **cluster, **model, "name": "new", "gpu": "T4", "vram_bytes": 4e6,
                "max_layers": 2, "tokens_per_s": [150.0, 70.0],
                "kv_capacity_token_layers": [1000.0, 500.0],
            },
            "POST profiles/estimate/": {**cluster, **heads, "gpu": "T4", "name": "reckoned"},
            "POST profiles/import/": {**cluster, "document": documents["profile"]},
            "POST profilings/": {"node": world["node"], **model},
            "POST clusters/{id}/measure/": {**model, "again": True},
            "POST shared-bandwidths/": {
                **cluster, "name": "downlink", "members": ["tower"], "direction": "ingress",
                "scope": "region", "bandwidth_bytes_per_s": 1e7,
            },
            "POST simulations/": {"plan": world["plan"], "workload": "backlog", "seed": 1},
            "POST users/": {"username": "grace", "role": "viewer"},
            "PATCH users/{id}/": {"is_active": False},
        }  # fmt: skip

    def _add_edits(self) -> None:
        """Of every body that makes a row one that changes a row; batches of both."""
        edits = (
            "alert-channels", "alert-rules", "alert-silences", "clusters", "links", "models",
            "nodes", "profiles", "region-links", "shared-bandwidths",
        )  # fmt: skip
        for name in edits:
            made = self.bodies[f"POST {name}/"]
            kept = {key: value for key, value in made.items() if key not in ("cluster", "model")}
            self.bodies[f"PATCH {name}/{{id}}/"] = kept
            self.bodies[f"POST {name}/batch/"] = {"create": [made]}

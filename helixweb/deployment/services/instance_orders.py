"""Orders of a generation for whole-model instances, as stored and as sent to processes.

A row stores an instance as `_order` makes it, without its key, which is derived each time.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from pydantic import ValidationError

from helixweb.deployment.backends import is_url
from helixweb.deployment.models import Deployment, NodeAssignment
from helixweb.inventory.models import Node
from planner import Plan, PlannedInstance, Problem, kv_room_token_layers
from runtime.protocol.instance_orders import (
    PIPELINES,
    AssignedInstance,
    ServedInstance,
    instance_url,
)
from runtime.protocol.instances import MOST_REQUESTS
from runtime.protocol.vllm_flags import most_requests, parse_vllm_flags

_ASSIGNED = (
    "name", "backend", "model_name", "checkpoint", "gpus", "max_context_tokens", "vllm_flags",
)  # fmt: skip


def instance_orders(deployment: Deployment, plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Orders of every node with instances; a URL is one instance, even if several were planned."""
    orders: dict[str, list[dict[str, Any]]] = {}
    for one in plan.instances:
        backend = deployment.backend_by_node.get(one.node, one.backend)
        mine = orders.setdefault(one.node, [])
        if not is_url(backend) or not mine:
            mine.append(_order(deployment, one, backend=backend))
    return orders


def instance_trouble(one: PlannedInstance) -> str:
    """What messages about it could not say, as of a plan of an older version, or one
    written by hand; empty if nothing."""
    if one.name == PIPELINES:
        return f"name: {PIPELINES!r} is what pipelines are called"
    try:
        AssignedInstance(
            name=one.name,
            backend=one.backend,
            model_name="any",
            checkpoint="any",
            gpus=one.gpus,
            api_key="any",
        )
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return ""


def _order(deployment: Deployment, one: PlannedInstance, *, backend: str) -> dict[str, Any]:
    return {
        "name": one.name,
        "backend": "url" if is_url(backend) else backend,
        "url": backend if is_url(backend) else "",
        "model_name": deployment.model_name,
        "checkpoint": deployment.checkpoint,
        "gpus": list(one.gpus),
        "max_context_tokens": deployment.max_context_tokens,
        "vllm_flags": list(parse_vllm_flags(deployment.model.vllm_flags)),
        "kv_room_tokens": one.kv_room_tokens,
        "prefill": list(one.times.prefill),
        "decode": list(one.times.decode),
    }


def assigned(orders: Iterable[dict[str, Any]], node: Node) -> tuple[AssignedInstance, ...]:
    """Instances that the node's agent must run: all but servers at URLs."""
    key = instance_key(node)
    return tuple(
        AssignedInstance(
            **{name: order[name] for name in _ASSIGNED if name in order},  # older rows lack flags
            api_key=key,
        )
        for order in orders
        if order["backend"] != "url"
    )


def served(row: NodeAssignment) -> list[ServedInstance]:
    """The row's instances that coordinators can reach: those with a known port, and URLs."""
    observed = {one["name"]: one for one in row.observed_instances if one["port"]}
    found = []
    for order in row.instances:
        if order["backend"] == "url":
            found.append(_served(order, row.node_name, url=order["url"].rstrip("/")))
        elif order["name"] in observed and row.node is not None:
            one = observed[order["name"]]
            certificate = one.get("certificate", "")
            host = urlsplit(row.node.data_endpoint).hostname or ""
            url = instance_url(host, one["port"], certificate=certificate)
            reached = {"url": url, "api_key": instance_key(row.node), "certificate": certificate}
            found.append(_served(order, row.node_name, **reached))
    return found


def _served(order: dict[str, Any], node: str, **reached: Any) -> ServedInstance:
    """An instance for coordinators. `reached`: its URL, key and certificate."""
    is_transformers = order["backend"] == "transformers"
    return ServedInstance(
        name=order["name"],
        node=node,
        model=order["checkpoint"] if is_transformers else order["model_name"],
        kv_room_tokens=order["kv_room_tokens"],
        most_requests=most_requests(
            tuple(order.get("vllm_flags", ())) if order["backend"] == "vllm" else (),
            default=MOST_REQUESTS,
        ),
        prefill=order["prefill"],
        decode=order["decode"],
        lists_model=not is_transformers,
        has_metrics=not is_transformers,
        tells_usage=order["backend"] in ("helix", "vllm"),
        takes_cache_salt=order["backend"] in ("helix", "vllm"),
        **reached,
    )


def instance_key(node: Node) -> str:
    """The key of the node's instances: the same in every generation."""
    return derived_key("hlxi_", f"instance:{node.uuid}")


def derived_key(prefix: str, text: str) -> str:
    """A key that depends only on the text and SECRET_KEY; never stored."""
    digest = hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256)
    return prefix + digest.hexdigest()


def pipelines_room_tokens(plan: Plan, problem: Problem) -> int:
    """Tokens whose KV the plan's stages hold at once: the room of the scarcest layer."""
    nodes = {one.node for one in plan.instances}
    room = [0.0] * plan.num_layers
    for name, held in plan.placement.layers.items():
        if name not in nodes:
            capacity = kv_room_token_layers(problem, name, held)
            for layer in range(held.first, held.end):
                room[layer] += capacity / len(held)
    return max(1, int(min(room)))

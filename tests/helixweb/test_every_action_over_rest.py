"""Whatever can be done on a page can be done over REST: no page that takes POST is left out."""

import inspect
from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster
from tests.helixweb.rest_collections import operations


def methods_of(view: Callable[..., Any]) -> set[str] | None:
    """Those that `require_http_methods` lets through; None: the view says nothing of it."""
    layer: Any = view
    while layer is not None:
        if inspect.isfunction(layer):
            held = inspect.getclosurevars(layer).nonlocals
            if "request_method_list" in held:
                return set(held["request_method_list"])
        layer = getattr(layer, "__wrapped__", None)
    found = getattr(view, "view_class", None)
    return (
        None if found is None else {name.upper() for name in dir(found) if name in ("get", "post")}
    )


def posting() -> dict[str, URLPattern]:
    found = {}
    for pattern in pages(get_resolver()):
        methods = methods_of(pattern.callback)
        assert methods is not None, f"{pattern.name}: say by a decorator which methods it takes"
        if "POST" in methods:
            found[str(pattern.name)] = pattern
    return found


def pages(resolver: URLResolver) -> list[URLPattern]:
    found: list[URLPattern] = []
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            if not str(entry.pattern).startswith("api/"):
                found += pages(entry)
        elif not str(entry.pattern).lstrip("^").startswith("api/"):
            found.append(entry)
    return found


OF_A_BROWSER = "for browsers alone"
EDITED = (
    "cluster", "node", "link", "region-link", "shared-bandwidth", "model", "alert-rule",
    "alert-channel",
)  # fmt: skip
VERBS = {"new": "create", "edit": "partial_update", "delete": "destroy"}
# The operation, or the operations, that do what the page does.
OPERATIONS = {
    f"{name}-{verb}": f"{name.replace('-', '_')}s_{action}"
    for name in EDITED
    for verb, action in VERBS.items()
} | {
    "login": OF_A_BROWSER,  # programs send an API key instead
    "login-link": OF_A_BROWSER,
    "logout": OF_A_BROWSER,
    "settings": OF_A_BROWSER,  # cookies
    # Programs ask the coordinator itself: /v1/chat/completions.
    "playground-chat": OF_A_BROWSER,
    "users": "users_create",
    "user": "users_partial_update",
    "user-keep-out": "users_partial_update",
    "user-let-in": "users_partial_update",
    "user-log-out": "users_log_out_create",
    "groups": "groups_create",
    "group": "groups_partial_update",
    "group-delete": "groups_destroy",
    "cluster-access": "grants_create",
    "grant-withdraw": "grants_destroy",
    "api-keys": "api_keys_create",
    "api-key-revoke": "api_keys_destroy",
    "sessions-end": "sessions_end_others_create",
    "session-end": "sessions_destroy",
    "nodes-bulk": "nodes_bulk_create nodes_batch_create",
    "join-token-revoke": "join_tokens_destroy",
    "cluster-demo": "clusters_demo_create",
    "cluster-import": "clusters_import_create",
    "cluster-join": "join_tokens_create",
    "coordinator-delete": "coordinators_destroy",
    "profile-version-use": "profile_versions_use_create",
    "profile-import": "profiles_import_create",
    "profile-new": "profiles_create",
    "profile-estimate": "profiles_estimate_create",
    "profile-delete": "profiles_destroy",
    "model-read": "models_create",  # reads the checkpoint as well
    "plan-run-new": "plan_runs_create",
    "plan-run-again": "plan_runs_create",  # with the options of the run
    "plan-run-cancel": "plan_runs_cancel_create",
    "plan-run-accept": "plan_runs_accept_create",
    "plan-run-extend": "plan_runs_extend_create",
    "replan-adopt": "plan_runs_adopt_create",
    "replan": "plans_replan_create",
    "plan-explanation": "plans_explanation_create",
    "plan-simulations": "simulations_create",
    "simulation-cancel": "simulations_cancel_create",
    "what-if": "plans_what_if_create",
    "model-mix-new": "model_mixes_create",
    "model-mix-cancel": "model_mixes_cancel_create",
    "deployment-new": "deployments_create",
    "deployment-stop": "deployments_stop_create",
    "deployment-roll-back": "deployments_roll_back_create",
    "deployment-pause": "deployments_pause_create",
    "deployment-resume": "deployments_resume_create",
    "deployment-weights": "deployments_weights_create",
    "repair-deploy": "repairs_deploy_create",
    "repair-dismiss": "repairs_dismiss_create",
    "node-drain": "drains_create",
    "node-take-in": "drains_destroy",
    "node-measure": "profilings_create",
    "cluster-measure": "clusters_measure_create",
    "node-measure-cancel": "profilings_destroy",
    "links-keep-measured": "clusters_keep_measured_links_create",
    "alert-acknowledge": "alerts_acknowledge_create",
    "alert-channel-test": "alert_channels_test_create",
    "alert-channel-secret": "alert_channels_new_secret_create",
    "alert-silence-new": "alert_silences_create",
    "alert-silence-end": "alert_silences_destroy",
    "alert-delivery-again": "alert_deliveries_again_create",
}


def test_whatever_pages_do_is_an_operation() -> None:
    assert posting().keys() == OPERATIONS.keys()
    named = {word for said in OPERATIONS.values() if said != OF_A_BROWSER for word in said.split()}
    assert named <= operations().keys()


def test_the_demo_cluster_is_loaded_once(api: APIClient) -> None:
    first, again = (api.post("/api/v1/clusters/demo/") for _ in range(2))
    assert first.status_code == 200, first.content
    assert again.json() == first.json()
    assert Cluster.unscoped.count() == 1

"""Whatever can be done on a page can be done over REST, and with a command or for a reason not."""

from collections.abc import Iterator

from rest_framework.test import APIClient

from docs.generate.command_line import _actions
from helixweb.command_line.main import parser_for
from helixweb.command_line.registry import COMMANDS
from helixweb.inventory.models import Cluster
from tests.helixweb.page_table import PAGES
from tests.helixweb.rest_collections import operations

OF_A_BROWSER = "for browsers alone"
VERBS = {"new": "create", "edit": "partial_update", "delete": "destroy"}
# The operation, or the operations, that do what a page does that is called otherwise than they are.
OPERATIONS = {
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
    "groups": "groups_create",
    "group": "groups_partial_update",
    "cluster-access": "grants_create",
    "grant-withdraw": "grants_destroy",
    "api-keys": "api_keys_create",
    "api-key-revoke": "api_keys_destroy",
    "sessions-end": "sessions_end_others_create",
    "session-end": "sessions_destroy",
    "nodes-bulk": "nodes_bulk_create nodes_batch_create",
    "join-token-revoke": "join_tokens_destroy",
    "cluster-join": "join_tokens_create",
    "model-mix-new": "model_mixes_create",
    "model-mix-cancel": "model_mixes_cancel_create",
    "model-read": "models_create",  # reads the checkpoint as well
    "plan-run-again": "plan_runs_create",  # with the options of the run
    "replan-adopt": "plan_runs_adopt_create",
    "replan": "plans_replan_create",
    "plan-simulations": "simulations_create",
    "what-if": "plans_what_if_create",
    "node-drain": "drains_create",
    "node-take-in": "drains_destroy",
    "node-measure": "profilings_create",
    "node-measure-cancel": "profilings_destroy",
    "links-keep-measured": "clusters_keep_measured_links_create",
    "alert-channel-secret": "alert_channels_new_secret_create",
    "alert-silence-end": "alert_silences_destroy",
    "alert-delivery-again": "alert_deliveries_again_create",
}


def called_like(page: str) -> Iterator[str]:
    """`links_create` for the page `link-new`, `deployments_stop_create` for `deployment-stop`."""
    words = page.split("-")
    for end in range(1, len(words)):
        verb = "_".join(words[end:])
        yield f"{'_'.join(words[:end])}s_{VERBS.get(verb, f'{verb}_create')}"


def test_whatever_pages_do_is_an_operation() -> None:
    posting = {name for name, (_look, change) in PAGES.items() if change} | {"login", "login-link"}
    known = operations().keys()
    assert {name for name in posting if known.isdisjoint(called_like(name))} == OPERATIONS.keys()
    named = {word for said in OPERATIONS.values() if said != OF_A_BROWSER for word in said.split()}
    assert named <= known


def test_the_demo_cluster_is_loaded_once(api: APIClient) -> None:
    first, again = (api.post("/api/v1/clusters/demo/") for _ in range(2))
    assert first.status_code == 200, first.content
    assert again.json() == first.json()
    assert Cluster.unscoped.count() == 1


# Operation -> the words after `helixweb`.
COMMAND_OF = {
    "clusters_create": "cluster add",
    "clusters_partial_update": "cluster edit",
    "clusters_destroy": "cluster remove",
    "nodes_create": "node add",
    "nodes_partial_update": "node edit",
    "nodes_bulk_create": "node edit",
    "nodes_destroy": "node remove",
    "join_tokens_create": "node token",
    "models_create": "model add",
    "models_partial_update": "model edit",
    "models_destroy": "model remove",
    "import_create": "import",
    "plan_runs_create": "plan compute",
    "plan_runs_cancel_create": "plan cancel",
    "plan_runs_accept_create": "plan accept",
    "plan_runs_extend_create": "plan extend",
    "plan_runs_adopt_create": "plan adopt",
    "plans_replan_create": "plan replan",
    "plans_what_if_create": "plan what-if",
    "plans_explanation_create": "plan explain",
    "simulations_create": "plan simulate",
    "model_mixes_create": "plan mix",
    "model_mixes_cancel_create": "plan mix",  # by Ctrl-C
    "deployments_create": "deploy",
    "deployments_pause_create": "pause",
    "deployments_resume_create": "resume",
    "deployments_roll_back_create": "rollback",
    "deployments_stop_create": "undeploy",
    "drains_create": "drain",
    "drains_destroy": "drain",
    "clusters_measure_create": "node measure",
    "profilings_create": "node measure",
}
# Beginning of operations -> why `helixweb api` is command enough for them.
BY_API_ALONE = {
    "agent_": "agents do it, with a credential of their own",
    "coordinator_": "coordinators do it, with a credential of their own",
    "users_": "who may come in is decided in the browser, where its reach is shown",
    "groups_": "see users",
    "grants_": "see users",
    "api_keys_": "see users; `manage.py apikey` makes the first one",
    "sessions_": "sessions are of browsers",
    "coordinators_": "a coordinator is forgotten or shut out when something is wrong, on its page",
    "join_tokens_destroy": "see coordinators; a token runs out by itself",
    "nodes_revoke_credential_create": "see coordinators",
    "links_": "`import` makes links as a file declares them",
    "region_links_": "see links",
    "shared_bandwidths_": "see links",
    "profiles_": "see links",
    "clusters_import_create": "see links: of one problem file",
    "clusters_batch_create": "`import` does many at once",
    "models_batch_create": "`import` does many at once",
    "nodes_batch_create": "`import` does many at once",
    "profile_versions_": "versions are compared by chart before one is used",
    "profilings_destroy": "see versions",
    "clusters_demo_create": "`demo` shows one at work",
    "clusters_keep_measured_links_create": "measured rates are looked at beside the declared",
    "deployments_weights_create": "see measured rates",
    "repairs_": "the plan is looked at before; `plan replan` and `deploy` do the same",
    "simulations_cancel_create": "it ends within a minute",
    "alert_rules_": "rules are written with sentences that say what they mean",
    "alert_channels_": "see rules; a channel's secret is shown once",
    "alert_silences_": "see rules",
    "alert_deliveries_": "see rules",
    "alerts_acknowledge_create": "see rules",
}


def actions() -> set[str]:
    """Operations that do something."""
    return {operation for operation, method in operations().items() if method != "get"}


def by_api(operation: str) -> bool:
    return any(operation.startswith(begin) for begin in BY_API_ALONE)


def test_every_action_has_a_command_or_a_reason() -> None:
    found = actions()
    assert not COMMAND_OF.keys() - found
    left = {one for one in found - COMMAND_OF.keys() if not by_api(one)}
    assert not left, "give each a command, or say here why it has none"
    assert not {one for one in BY_API_ALONE if not any(name.startswith(one) for name in found)}


def test_these_commands_are_there() -> None:
    for name in {words.partition(" ")[0] for words in COMMAND_OF.values()}:
        assert name in COMMANDS
        known = set(_actions(parser_for([name]), name))
        named = {words.partition(" ")[2] for words in COMMAND_OF.values()
                 if words.partition(" ")[0] == name} - {""}  # fmt: skip
        assert named <= known, name

"""What every operation of the REST API needs, written down apart from the code that asks for it.

`viewer`, `operator` and `admin` are roles on the cluster of the row; with `site-` before it the
role must be held on the whole site. `own`: to be logged in; `process`: no person at all; `open`:
nobody need be known. A tuple's second need does as well.
"""

Need = str | tuple[str, str]


def _rows(*names: str, look: Need = "viewer", change: Need = "operator") -> dict[str, Need]:
    """Collections with a row each that can be read, made, changed and deleted."""
    table: dict[str, Need] = {}
    for name in names:
        table |= {
            f"GET {name}/": look, f"GET {name}/{{id}}/": look, f"POST {name}/": change,
            f"PATCH {name}/{{id}}/": change, f"DELETE {name}/{{id}}/": change,
            f"POST {name}/batch/": change,
        }  # fmt: skip
    return table


def _all(need: Need, *operations: str) -> dict[str, Need]:
    return dict.fromkeys(operations, need)


OPERATIONS: dict[str, Need] = {
    # What belongs to a cluster.
    **_rows(
        "nodes", "links", "region-links", "shared-bandwidths", "profiles",
        "alert-rules", "alert-silences",
    ),
    **_rows("alert-channels", look="operator"),
    **_all(
        "viewer",
        "GET alert-deliveries/", "GET alert-deliveries/{id}/", "GET alerts/", "GET alerts/{id}/",
        "GET changes/", "GET changes/{id}/", "GET clusters/", "GET clusters/{id}/",
        "GET clusters/{id}/bottleneck/", "GET clusters/{id}/metrics/",
        "GET clusters/{id}/problem/", "GET clusters/{id}/reach/",
        "GET coordinators/", "GET coordinators/{id}/",
        "GET deployments/", "GET deployments/{id}/", "GET deployments/{id}/instances/",
        "GET deployments/{id}/links/", "GET deployments/{id}/predictions/",
        "GET deployments/{id}/timeline/", "GET drains/", "GET drains/{id}/", "GET export/",
        "GET join-tokens/", "GET join-tokens/{id}/", "GET metrics/latest/", "GET model-mixes/",
        "GET model-mixes/{id}/", "GET models/", "GET models/{id}/", "GET nodes/{id}/log",
        "GET plan-runs/", "GET plan-runs/{id}/", "GET plan-runs/{id}/incumbents/",
        "GET plan-runs/{id}/replan/", "GET plans/", "GET plans/{id}/",
        "GET plans/{id}/explanation/", "GET plans/{id}/figures/{figure}/",
        "GET plans/{id}/unmoved/", "GET plans/compare/", "GET profile-versions/",
        "GET profile-versions/{id}/", "GET profiles/{id}/export/", "GET profilings/",
        "GET profilings/{id}/", "GET repairs/", "GET repairs/{id}/", "GET requests/",
        "GET requests/{number}/", "GET simulations/", "GET simulations/{id}/",
    ),
    **_all(
        "operator",
        "POST alert-channels/{id}/new-secret/", "POST alert-channels/{id}/test/",
        "POST alert-deliveries/{id}/again/", "POST alerts/{id}/acknowledge/",
        # By the clusters that the file names; models and new clusters need the site's operator.
        "POST import/",
        "PATCH clusters/{id}/", "POST clusters/{id}/keep-measured-links/",
        "POST clusters/{id}/measure/",
        "POST deployments/{id}/weights/", "DELETE coordinators/{id}/", "POST deployments/",
        "POST deployments/{id}/pause/", "POST deployments/{id}/resume/",
        "POST deployments/{id}/roll-back/", "POST deployments/{id}/stop/", "POST drains/",
        "DELETE drains/{id}/", "POST join-tokens/", "DELETE join-tokens/{id}/",
        "POST model-mixes/", "POST model-mixes/{id}/cancel/", "POST nodes/bulk/",
        "POST nodes/{id}/revoke-credential/", "POST coordinators/{id}/revoke-credential/",
        "POST plan-runs/", "POST plan-runs/{id}/accept/", "POST plan-runs/{id}/adopt/",
        "POST plan-runs/{id}/cancel/", "POST plan-runs/{id}/extend/",
        "POST plans/{id}/explanation/", "POST plans/{id}/replan/", "POST plans/{id}/what-if/",
        "DELETE profile-versions/{id}/", "POST profile-versions/{id}/use/",
        "POST profiles/estimate/", "POST profiles/import/", "POST profilings/",
        "DELETE profilings/{id}/", "POST repairs/{id}/deploy/", "POST repairs/{id}/dismiss/",
        "POST simulations/", "POST simulations/{id}/cancel/",
    ),
    "DELETE clusters/{id}/": ("admin", "site-operator"),
    # Who may do what on a cluster.
    **_all("admin", "GET grants/", "GET grants/{id}/", "POST grants/", "DELETE grants/{id}/"),
    # What belongs to no cluster.
    **_all(
        "site-operator",
        "POST clusters/", "POST clusters/batch/", "POST clusters/demo/",
        "POST clusters/import/",
        "POST models/", "PATCH models/{id}/", "DELETE models/{id}/", "POST models/batch/",
    ),
    **_all("site-viewer", "GET users/", "GET users/{id}/", "GET groups/", "GET groups/{id}/"),
    **_all(
        "site-admin",
        "POST users/", "PATCH users/{id}/", "POST users/{id}/login-link/",
        "POST users/{id}/log-out/", "POST groups/", "PATCH groups/{id}/", "DELETE groups/{id}/",
    ),
    # One's own.
    **_all(
        "own",
        "GET me/", "GET events/", "GET api-keys/", "GET api-keys/{id}/", "POST api-keys/",
        "DELETE api-keys/{id}/", "GET sessions/", "DELETE sessions/{id}/",
        "POST sessions/end-others/",
    ),
    # No people's.
    **_all(
        "process",
        "GET agent/desired", "POST agent/heartbeat", "PUT agent/identity", "POST agent/log",
        "GET agent/stream", "GET agent/weight-peers",
        "GET agent/weights/{model}/resolve/{revision}/{file}",
        "GET coordinator/desired", "POST coordinator/report",
        "GET coordinator/stream",
    ),
    "POST agent/register": "open",
}  # fmt: skip

"""Find the rows that names and ids on the command line mean."""

from helixweb.client import Client, Row, Rows
from helixweb.command_line.reporting import BadUsage, NoSuchName

IN_SERVICE = ("deploying", "ready", "degraded")
_SHOWN = 10


def cluster_named(client: Client, word: str | None) -> Row:
    """The cluster with that name or id; for None the only cluster. Raises NoSuchName, BadUsage."""
    if word is not None and (found := _named(client.clusters, word)):
        return found
    known = list(client.clusters.all(limit=_SHOWN + 1))
    names = _listed([one["name"] for one in known])
    if word is not None:
        raise NoSuchName(f"there is no cluster {word!r}; there are: {names}")
    if len(known) == 1:
        return known[0]
    if not known:
        raise NoSuchName("there is no cluster yet; make one with `helixweb cluster add NAME`")
    raise BadUsage(f"say which cluster with --cluster; there are: {names}")


def node_named(client: Client, word: str, cluster: str | None) -> Row:
    """The node with that name, else with that id. Raises NoSuchName, BadUsage."""
    within = cluster and cluster_named(client, cluster)["id"]
    found = list(client.nodes.all(name=word, cluster=within))
    if not found and word.isdecimal() and cluster is None:
        return client.nodes.get(int(word))
    if not found:
        raise NoSuchName(f"there is no node {word!r}; `helixweb node list` names all")
    if len(found) > 1:
        raise BadUsage(f"{len(found)} clusters have a node {word!r}; say which with --cluster")
    return found[0]


def model_named(client: Client, word: str) -> Row:
    """The model with that name or id. Raises NoSuchName."""
    if found := _named(client.models, word):
        return found
    names = _listed([one["name"] for one in client.models.all(limit=_SHOWN + 1)])
    raise NoSuchName(f"there is no model {word!r}; there are: {names}")


def only_model(client: Client, word: str | None) -> Row:
    """The named model, or the only one with a checkpoint. Raises NoSuchName, BadUsage."""
    if word is not None:
        return model_named(client, word)
    known = [model for model in client.models.all() if model.get("checkpoint")]
    if len(known) == 1:
        return known[0]
    if not known:
        raise NoSuchName("there is no model yet; add one with `helixweb model add PATH`")
    names = _listed([model["name"] for model in known])
    raise BadUsage(f"say which model with --model; there are: {names}")


def model_of_cluster(client: Client, word: str | None, cluster: Row) -> Row:
    """The named model, else the only one that the cluster has profiles for, else the only one."""
    if word is not None:
        return model_named(client, word)
    wanted = {profile["model"] for profile in client.profiles.all(cluster=cluster["id"])}
    known = [model for model in client.models.all() if model["id"] in wanted]
    if len(known) == 1:
        return known[0]
    if not known:
        return only_model(client, None)
    names = _listed([model["name"] for model in known])
    raise BadUsage(f"say which model with --model; {cluster['name']} has profiles for: {names}")


def deployment_of(client: Client, number: int | None, cluster: str | None) -> Row:
    """That deployment, else the one in service on the cluster. Raises NoSuchName, BadUsage."""
    if number is not None:
        return client.deployments.get(number)
    row = cluster_named(client, cluster)
    serving = in_service(client, row["id"])
    if serving is None:
        raise NoSuchName(f"nothing is deployed on cluster {row['name']}")
    return serving


def in_service(client: Client, cluster: int) -> Row | None:
    """The newest deployment of the cluster that serves or starts to."""
    found = client.deployments.all(
        cluster=cluster, status__in=list(IN_SERVICE), ordering=["-id"], limit=1
    )
    return next(found, None)


def _named(rows: Rows, word: str) -> Row | None:
    """The row with that name, else the one with that id."""
    found = next(rows.all(name=word, limit=1), None)
    if found is None and word.isdecimal():
        found = next((one for one in rows.all() if one["id"] == int(word)), None)
    return found


def _listed(names: list[str]) -> str:
    more = ", …" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none yet"

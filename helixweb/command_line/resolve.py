"""Find the rows that names and ids on the command line mean."""

from typing import TYPE_CHECKING

from helixweb.command_line.failures import BadUsage, NoSuchName
from helixweb.command_line.session import Row, Session

if TYPE_CHECKING:
    from helixweb.client import Rows

IN_SERVICE = ("deploying", "ready", "degraded")
_SHOWN = 10


def cluster_named(site: Session, word: str | None) -> Row:
    """The cluster with that name or id; for None the only cluster. Raises NoSuchName, BadUsage."""
    if word is not None:
        return _named(site.client.clusters, word, "cluster")
    known = list(site.client.clusters.all(limit=_SHOWN + 1))
    return _only(known, "cluster", "make one with `helixweb cluster add NAME`", "there are")


def within(site: Session, cluster: str | None) -> int | None:
    """The id of the named cluster, to filter by; None if none was named."""
    return cluster_named(site, cluster)["id"] if cluster is not None else None


def node_named(site: Session, word: str, cluster: str | None) -> Row:
    """The node with that name, else with that id. Raises NoSuchName, BadUsage."""
    found = list(site.client.nodes.all(name=word, cluster=within(site, cluster)))
    if not found and cluster is None and word.isascii() and word.isdecimal():
        return site.client.nodes.get(int(word))
    if not found:
        raise NoSuchName(f"there is no node {word!r}; `helixweb node list` names all")
    if len(found) > 1:
        raise BadUsage(f"{len(found)} clusters have a node {word!r}; say which with --cluster")
    return found[0]


def model_named(site: Session, word: str) -> Row:
    """The model with that name or id. Raises NoSuchName."""
    return _named(site.client.models, word, "model")


def only_model(site: Session, word: str | None) -> Row:
    """The named model, or the only one with a checkpoint. Raises NoSuchName, BadUsage."""
    if word is not None:
        return model_named(site, word)
    known = [model for model in site.client.models.all() if model.get("checkpoint")]
    return _only(known, "model", "add one with `helixweb model add PATH`", "there are")


def model_of_cluster(site: Session, word: str | None, cluster: Row) -> Row:
    """The named model, else the only one that the cluster has profiles for, else the only one."""
    wanted = {profile["model"] for profile in site.client.profiles.all(cluster=cluster["id"])}
    known = [model for model in site.client.models.all() if model["id"] in wanted]
    if word is not None or not known:
        return only_model(site, word)
    return _only(known, "model", "", f"{cluster['name']} has profiles for")


def deployment_of(site: Session, number: int | None, cluster: str | None) -> Row:
    """The deployment `number`, else the cluster's live one. Raises NoSuchName, BadUsage."""
    if number is not None:
        return site.client.deployments.get(number)
    row = cluster_named(site, cluster)
    if (serving := in_service(site, row["id"])) is None:
        raise NoSuchName(f"nothing is deployed on cluster {row['name']}")
    return serving


def in_service(site: Session, cluster: int) -> Row | None:
    """The newest deployment of the cluster that serves or starts to."""
    found = site.client.deployments.all(
        cluster=cluster, status__in=IN_SERVICE, ordering=["-id"], limit=1
    )
    return next(found, None)


def names_of(rows: "Rows") -> dict[int, str]:
    """The names of the rows of a collection by their ids."""
    return {row["id"]: row["name"] for row in rows.all()}


def _named(rows: "Rows", word: str, noun: str) -> Row:
    """The row with that name, else the one with that id. Raises NoSuchName."""
    found = next(rows.all(name=word, limit=1), None)
    if found is None and word.isascii() and word.isdecimal():
        found = next((one for one in rows.all() if one["id"] == int(word)), None)
    if found is None:
        names = _listed(list(rows.all(limit=_SHOWN + 1)))
        raise NoSuchName(f"there is no {noun} {word!r}; there are: {names}")
    return found


def _only(known: list[Row], noun: str, remedy: str, those: str) -> Row:
    if not known:
        raise NoSuchName(f"there is no {noun} yet; {remedy}")
    if len(known) > 1:
        raise BadUsage(f"say which {noun} with --{noun}; {those}: {_listed(known)}")
    return known[0]


def _listed(rows: list[Row]) -> str:
    more = ", …" if len(rows) > _SHOWN else ""
    return ", ".join(row["name"] for row in rows[:_SHOWN]) + more if rows else "none yet"

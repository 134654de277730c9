"""Problem files: `helixweb.problem/1`, JSON or YAML."""

from collections.abc import Mapping

from planner.document import Section, parse_document
from planner.domain.cluster import COORDINATOR, Cluster, Link, Node, SharedBandwidth
from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import FIXED_KEYS
from planner.domain.limits import Name
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.serialization.placements import check_format
from planner.serialization.records import record_from, record_to_dict, value_from

PROBLEM_FORMAT = "helixweb.problem/1"


def problem_from_text(text: str, *, name_hint: str) -> Problem:
    """Read a problem; errors start with `name_hint`, whose suffix selects JSON or YAML."""
    try:
        return problem_from_dict(parse_document(text, name_hint=name_hint))
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None


def problem_from_dict(document: object) -> Problem:
    """The problem in a parsed document; its cluster takes the problem's name."""
    top = Section.at(document, "")
    check_format(top, PROBLEM_FORMAT)
    profiles = top.section("compute_profiles")
    given = {
        "compute_profiles": {
            name: _profile(profiles.section(name), name) for name in profiles.values
        },
        "cluster": _cluster(top, known_profiles=profiles.values),
    }
    return record_from(
        top,
        Problem,
        given=given,
        besides=("format", "compute_profiles", "nodes", "coordinator", "network"),
    )


def problem_to_dict(problem: Problem) -> dict[str, object]:
    """The document that `problem_from_dict` reads."""
    cluster = problem.cluster
    return {
        "format": PROBLEM_FORMAT,
        "name": problem.name,
        **({"source": problem.source} if problem.source else {}),
        "model": record_to_dict(problem.model, brief=True),
        "workload": record_to_dict(problem.workload),
        "compute_profiles": {
            name: profile_to_dict(profile) for name, profile in problem.compute_profiles.items()
        },
        "nodes": [_node_to_dict(node) for node in cluster.nodes],
        "coordinator": {"region": cluster.coordinator_region},
        "network": {
            "region_pairs": [record_to_dict(link) for link in cluster.region_links],
            "links": [record_to_dict(link) for link in cluster.links],
            **({"shared": [record_to_dict(s) for s in cluster.shared]} if cluster.shared else {}),
        },
    }


def profile_to_dict(profile: ComputeProfile) -> dict[str, object]:
    """A compute profile's section of a problem; its name is the section's key."""
    section = record_to_dict(profile, brief=True)
    del section["name"]
    times = section.get("layer_times")
    if isinstance(times, dict):
        section["layer_times"] = {
            key: value for key, value in times.items() if value or key not in FIXED_KEYS
        }
    return section


def profile_from_dict(section: object, *, name: str) -> ComputeProfile:
    """The compute profile that `profile_to_dict` wrote. Raises InvalidProblem."""
    return _profile(Section.at(section, f"compute profile {name!r}"), name)


def _profile(section: Section, name: str) -> ComputeProfile:
    return record_from(section, ComputeProfile, given={"name": name})


def _node_to_dict(node: Node) -> dict[str, object]:
    section = record_to_dict(node, brief=True)
    if node.gpus == 1:
        del section["gpus"]
    return section


def _cluster(top: Section, *, known_profiles: Mapping[str, object]) -> Cluster:
    coordinator = top.section("coordinator")
    coordinator.allow_only("region")
    network = top.section("network")
    network.allow_only("region_pairs", "links", "shared")
    nodes = value_from(top.value("nodes"), "nodes", tuple[Node, ...])
    if not nodes:
        raise InvalidProblem("nodes is an empty list; add at least one node")
    _check_nodes(nodes, known_profiles)
    links = value_from(network.value("links"), "network.links", tuple[Link, ...])
    _check_ends(links, {COORDINATOR, *(node.name for node in nodes)})
    return Cluster(
        name=value_from(top.value("name"), "name", Name),
        coordinator_region=value_from(coordinator.value("region"), "coordinator.region", Name),
        nodes=nodes,
        region_links=value_from(
            network.value("region_pairs"), "network.region_pairs", tuple[Link, ...]
        ),
        links=links,
        shared=value_from(
            network.values.get("shared", []), "network.shared", tuple[SharedBandwidth, ...]
        ),
    )


def _check_nodes(nodes: tuple[Node, ...], known_profiles: Mapping[str, object]) -> None:
    place_of: dict[str, int] = {}
    for place, node in enumerate(nodes):
        other = place_of.setdefault(node.name, place)
        if other != place:
            raise InvalidProblem(
                f"nodes[{place}].name is {node.name!r}, which nodes[{other}] has already; node "
                "names must be unique"
            )
        if node.compute_profile not in known_profiles:
            raise InvalidProblem(
                f"nodes[{place}].compute_profile is {node.compute_profile!r}, which is unknown; "
                f"add it to compute_profiles or use one of: "
                f"{', '.join(sorted(known_profiles)) or 'none yet'}"
            )


def _check_ends(links: tuple[Link, ...], known: set[str]) -> None:
    for place, link in enumerate(links):
        for key, end in (("source", link.source), ("target", link.target)):
            if end not in known:
                raise InvalidProblem(
                    f"network.links[{place}].{key} is {end!r}, which is not a node; use the name "
                    f"of a listed node or {COORDINATOR!r}"
                )

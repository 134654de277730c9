"""Checks of a whole row against the names of its cluster; shared by pages, REST and files."""

from django.db import models
from django.utils.translation import gettext as _

import planner
from helixweb.inventory.cluster_names import ClusterNames
from helixweb.inventory.models import Link, Node, Profile, RegionLink, SharedBandwidth
from helixweb.inventory.services.problems import compute_profile, domain_of
from planner import COORDINATOR, InvalidProblem

_LONGEST_LIST = 300


def check_row(row: models.Model, names: ClusterNames) -> None:
    """Check what depends on several fields or rows. Raises InvalidProblem with value and remedy."""
    if isinstance(row, Node):
        _check_profile_name(row, names)
    elif isinstance(row, Link):
        domain_of(planner.Link, row)
        _check_ends(row, names)
    elif isinstance(row, RegionLink):
        domain_of(planner.Link, row)
    elif isinstance(row, SharedBandwidth):
        domain_of(planner.SharedBandwidth, row, members=tuple(row.members))
        _check_members(row, names)
    elif isinstance(row, Profile):
        compute_profile(row)
    elif (check := getattr(row, "check_row", None)) is not None:  # of apps above
        check()


def _check_profile_name(node: Node, names: ClusterNames) -> None:
    if node.profile_name and node.profile_name not in names.profiles:
        raise InvalidProblem(
            _(
                "node %(name)s: the cluster has no compute profile %(profile_name)s; "
                "leave it empty or choose one of: %(names)s"
            )
            % {
                "name": repr(node.name),
                "profile_name": repr(node.profile_name),
                "names": ", ".join(sorted(names.profiles))[:_LONGEST_LIST] or _("none yet"),
            }
        )


def _check_ends(link: Link, names: ClusterNames) -> None:
    for end in (link.source, link.target):
        if end not in names.ends:
            raise InvalidProblem(
                _(
                    "link %(link)s: %(end)s is not a node of cluster %(name)s; name one of "
                    "its nodes or %(coordinator)s"
                )
                % {
                    "link": link,
                    "end": repr(end),
                    "name": repr(names.cluster.name),
                    "coordinator": repr(COORDINATOR),
                }
            )
    if link.source == link.target:
        raise InvalidProblem(
            _("link %(link)s joins a node to itself; choose two different ends") % {"link": link}
        )


def _check_members(row: SharedBandwidth, names: ClusterNames) -> None:
    for member in row.members:
        if member not in names.members:
            raise InvalidProblem(
                _(
                    "shared bandwidth %(name)s: member %(member)s is neither a node nor a "
                    "region of cluster %(cluster)s; name one of these or %(coordinator)s"
                )
                % {
                    "name": repr(row.name),
                    "member": repr(member),
                    "cluster": repr(names.cluster.name),
                    "coordinator": repr(COORDINATOR),
                }
            )

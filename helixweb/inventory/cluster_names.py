"""Names that rows of a cluster may refer to."""

from functools import cached_property

from helixweb.inventory.models import Cluster


class ClusterNames:
    """Each set is read once, when it is first asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @cached_property
    def profiles(self) -> frozenset[str]:
        return frozenset(self.cluster.profiles.values_list("name", flat=True))

    @cached_property
    def ends(self) -> frozenset[str]:
        """Possible ends of links: nodes and the coordinator."""
        return frozenset(self._region_of)

    @cached_property
    def members(self) -> frozenset[str]:
        """Possible members of a shared bandwidth: nodes, regions and the coordinator."""
        return self.ends.union(self._region_of.values())

    @cached_property
    def _region_of(self) -> dict[str, str]:
        return self.cluster.region_of

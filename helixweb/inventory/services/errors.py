"""Exceptions of the inventory's services."""

from helixweb.common.refusals import NotAdmitted, Refused


class InventoryError(Refused):
    """The root; the text names the value and the remedy."""

    default_code = "inventory_refused"


class NameTaken(InventoryError):
    """Another row has the name already."""

    default_code = "name_taken"


class Conflicting(InventoryError):
    """Existing rows contradict the request."""

    default_code = "conflicting"


class JoinRefused(InventoryError, NotAdmitted):
    """A join token that does not admit this process."""

    default_code = "join_refused"

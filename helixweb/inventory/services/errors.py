"""What the inventory refuses. Rooted in APIException, so the REST API answers with a problem."""

from rest_framework.exceptions import APIException


class InventoryError(APIException):
    """The root; the text names the value and the remedy."""

    status_code = 409
    default_code = "inventory_refused"


class NameTaken(InventoryError):
    """Another row has the name already."""

    default_code = "name_taken"


class Conflicting(InventoryError):
    """What is there already says something else."""

    default_code = "conflicting"


class JoinRefused(InventoryError):
    """A join token that admits nobody, or not this process."""

    status_code = 403
    default_code = "join_refused"

"""Everything that writes the inventory; views, the REST API and other apps call these functions."""

from helixweb.inventory.services.bulk import NodeChanges, change_nodes, delete_nodes
from helixweb.inventory.services.change_log import prune_changes
from helixweb.inventory.services.credentials import revoke_credential
from helixweb.inventory.services.demonstration import DEMO_NAME, demo_cluster, demo_problem
from helixweb.inventory.services.errors import Conflicting, InventoryError, JoinRefused, NameTaken
from helixweb.inventory.services.joining import (
    NewJoinToken,
    Registration,
    TokenExpired,
    TokenForAnotherRole,
    TokenUnknown,
    TokenUsed,
    command_works_elsewhere,
    create_join_token,
    join_command,
    register,
    revoke_join_token,
)
from helixweb.inventory.services.presence import (
    announce_silent,
    authenticate_agent,
    record_left,
    record_seen,
    update_identity,
    was_told_to_end,
)
from helixweb.inventory.services.problems import (
    build_problem,
    import_problem,
    import_problem_document,
    models_by_cluster,
    models_of,
)
from helixweb.inventory.services.profile_versions import (
    delete_version,
    estimate_profile,
    export_profile,
    import_profile,
    import_profile_text,
    keep_refined,
    keep_version,
    take_measured,
    use_version,
)
from helixweb.inventory.services.rows import create, delete, update

__all__ = [
    "DEMO_NAME",
    "Conflicting",
    "InventoryError",
    "JoinRefused",
    "NameTaken",
    "NewJoinToken",
    "NodeChanges",
    "Registration",
    "TokenExpired",
    "TokenForAnotherRole",
    "TokenUnknown",
    "TokenUsed",
    "announce_silent",
    "authenticate_agent",
    "build_problem",
    "change_nodes",
    "command_works_elsewhere",
    "create",
    "create_join_token",
    "delete",
    "delete_nodes",
    "delete_version",
    "demo_cluster",
    "demo_problem",
    "estimate_profile",
    "export_profile",
    "import_problem",
    "import_problem_document",
    "import_profile",
    "import_profile_text",
    "join_command",
    "keep_refined",
    "keep_version",
    "models_by_cluster",
    "models_of",
    "prune_changes",
    "record_left",
    "record_seen",
    "register",
    "revoke_credential",
    "revoke_join_token",
    "take_measured",
    "update",
    "update_identity",
    "use_version",
    "was_told_to_end",
]

"""How a process is given its join token: by `--token`, or by the environment.

Every user of a machine can read the arguments of its processes, only the owner their environment.
"""

from collections.abc import MutableMapping

TOKEN_VARIABLE = "HELIX_JOIN_TOKEN"  # noqa: S105 a name, not a token
TOKEN_HELP = (
    f"join token hlxj_…; needed at the first start only (default: that of {TOKEN_VARIABLE}, which "
    "the process list does not show)"
)


def given_token(argument: str | None, environ: MutableMapping[str, str]) -> str | None:
    """The token of `--token`, else that of the environment; an empty one is none.

    Removes it from `environ`, so that child processes do not inherit it.
    """
    inherited = environ.pop(TOKEN_VARIABLE, None)
    return argument or inherited or None

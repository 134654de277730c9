"""`python -m helixweb.operations.prepare`: what a site needs before its processes can start.

Run by `up` as a process of its own, so that the supervisor stays small. Says on stdout, as one JSON
object, what it found and did; a failure is one line on stderr and exit status 1.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from helixweb.command_line.failures import CommandFailed
from helixweb.operations.data_folder import DataFolder
from helixweb.operations.site import opened


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--migrate", action="store_true", help="bring the database up to date")
    parser.add_argument("--login", help="a login link for this user; empty: for a first log-in")
    parser.add_argument(
        "--coordinator-of", default=None, help="a join token for this cluster, if need be"
    )
    options = parser.parse_args(argv)
    try:
        with opened():
            print(json.dumps(_prepare(options)))  # noqa: T201 - the answer to `up`
    except CommandFailed as fault:
        sys.stderr.write(f"{fault}\n")
        return 1
    return 0


def _prepare(options: argparse.Namespace) -> dict[str, Any]:
    from django.conf import settings

    from helixweb.operations import first_start, health, migrating

    done: dict[str, Any] = {"migrated": 0, "backup": ""}
    if fault := health.broker_fault():
        raise CommandFailed(f"The broker does not answer: {fault}; start it, or check REDIS_URL.")
    if options.migrate:
        applied, stored = migrating.migrate_with_backup(say=_say)
        done |= {"migrated": applied, "backup": str(stored or "")}
    elif migrating.pending():
        raise CommandFailed(
            "The database lacks tables of this version; the role web brings it up to date when it "
            "starts. Start that first."
        )
    if options.login is not None:
        done["login_link"] = first_start.login_link(options.login)
    folder = DataFolder(path=Path(settings.DATA_DIR))
    if options.coordinator_of is not None and not first_start.is_joined(
        folder.coordinator_credential
    ):
        former = folder.coordinator_cluster
        done |= first_start.coordinator_token(options.coordinator_of, former=former)
    return done


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

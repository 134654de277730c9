"""Options that every process with an OpenAI endpoint has."""

import argparse

from runtime.command_numbers import positive_seconds


def add_serving_options(parser: argparse.ArgumentParser, *, late: str, grace_s: float) -> None:
    """`late`: what has failed that makes no progress for the request timeout."""
    parser.add_argument(
        "--request-timeout",
        dest="request_timeout_s",
        type=positive_seconds,
        default=120.0,
        help=f"seconds without progress after which {late} (default %(default)g)",
    )
    parser.add_argument(
        "--shutdown-grace",
        dest="shutdown_grace_s",
        type=positive_seconds,
        default=grace_s,
        metavar="SECONDS",
        help="after SIGTERM: how long requests may take to end, while new ones are refused; "
        "SIGINT, or a second signal, ends them at once (default %(default)g)",
    )

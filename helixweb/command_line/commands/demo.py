"""`helixweb demo`: what `make demo` runs."""

import argparse

from helixweb.command_line.registry import COMMANDS, Subparsers


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    from helixweb.demo.__main__ import add_options

    parser = subparsers.add_parser("demo", help=COMMANDS["demo"][1])
    add_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    from helixweb.demo.__main__ import run as run_demo

    return run_demo(arguments)

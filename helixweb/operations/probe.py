"""`python -m helixweb.operations.probe URL`: whether something is up, for health checks of
containers, which have no curl. Exit status 0: it is."""

import argparse
import sys

import psutil

from helixweb.operations.asking import answers


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="must answer with a success")
    parser.add_argument("--any-status", action="store_true", help="or with any status at all")
    parser.add_argument("--process", metavar="WORD", help="a process with this word in it runs")
    options = parser.parse_args(argv)
    if options.url is None and options.process is None:
        parser.error("give a URL or --process WORD")
    up = options.url is None or answers(options.url, any_status=options.any_status)
    if options.process is not None:
        up = up and any(options.process in word for word in _words_of_others())
    return 0 if up else 1


def _words_of_others() -> list[str]:
    """The command lines of all processes but this one."""
    me = psutil.Process().pid
    others = psutil.process_iter(["pid", "cmdline"])
    return [word for one in others if one.info["pid"] != me for word in one.info["cmdline"] or ()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

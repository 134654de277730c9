"""`helixweb top`: nodes, links and latencies, live. Ctrl-C ends it."""

import shutil
import signal
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from helixweb.client import ServerFailed, TooManyRequests, Unreachable
from helixweb.command_line.command import argument, command
from helixweb.command_line.numbers import seconds
from helixweb.command_line.output import cut, json_line, one_line
from helixweb.command_line.reading import read_cluster
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session
from helixweb.command_line.top_frame import frame

_ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_SIZE = (80, 24)


@command(
    argument("cluster", nargs="?", help="its name or id", complete="clusters"),
    argument("--once", action="store_true", help="one picture, then end"),
    argument("--interval", type=seconds, default=2.0, metavar="S", help="(2)"),
)
def top(site: Session, arguments: Namespace) -> None:
    number = cluster_named(site.client, arguments.cluster)["id"]
    if arguments.once or site.as_json or not site.around.can_draw:
        _print(site, number)
        while not arguments.once:
            site.around.sleep(arguments.interval)
            _print(site, number)
        return
    with _other_screen(site):
        while True:
            _redraw(site, number)
            site.around.sleep(arguments.interval)


class _Ended(BaseException):
    """By SIGTERM, or because the terminal is gone."""


@contextmanager
def _other_screen(site: Session) -> Iterator[None]:
    """Within, the terminal shows nothing else; Ctrl-C and SIGTERM leave, and give it back."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Ended

    names = ("SIGTERM", "SIGHUP")  # Windows has one of them
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        site.around.out.write(_ENTER)
        yield
    except (KeyboardInterrupt, _Ended):
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        site.around.out.write(_LEAVE)
        site.around.out.flush()


def _print(site: Session, cluster: int) -> None:
    """Whole, for a file or a program; one line of JSON each with --json."""
    reading = read_cluster(site.client, site.client.clusters.get(cluster))
    if site.as_json:
        site.around.say(json_line(reading.as_json()))
    else:
        columns, lines = shutil.get_terminal_size(_SIZE) if site.around.is_terminal else (200, 1000)
        site.around.say("\n".join(frame(reading, columns=columns, lines=lines)))
    site.around.out.flush()


def _redraw(site: Session, cluster: int) -> None:
    """Over the last picture; a server that is away for a moment is said on the last line."""
    columns, lines = shutil.get_terminal_size(_SIZE)
    try:
        reading = read_cluster(site.client, site.client.clusters.get(cluster))
        told = frame(reading, columns=columns, lines=lines - 1)
    except (ServerFailed, TooManyRequests, Unreachable) as error:
        site.around.out.write(f"\x1b[{lines};1H{cut(one_line(error), columns - 1)}{_TO_LINE_END}")
    else:
        drawn = f"{_TO_LINE_END}\r\n".join(told)
        site.around.out.write(f"{_HOME}{drawn}{_TO_LINE_END}{_TO_SCREEN_END}")
    site.around.out.flush()

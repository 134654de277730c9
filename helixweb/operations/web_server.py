"""`python -m helixweb.operations.web_server FD`: the site on a socket that is bound already.

With `--tls-certificate` and `--tls-key` it speaks https itself; a proxy in front is the other way.
"""

import argparse
import socket
import sys

import uvicorn

GRACEFUL_SHUTDOWN_S = 2  # for answers on their way; streams of events end at once


class Server(uvicorn.Server):
    """Ends streams of events, which would be open as long as their readers are."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        from helixweb.common.broadcaster import BROADCASTER  # loads Django

        BROADCASTER.end_all()
        await super().shutdown(sockets)


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    config = uvicorn.Config(
        "helixweb.asgi:application",
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,  # Django reads them, only with HELIX_BEHIND_PROXY
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
    )
    server = Server(config)
    server.run(sockets=[socket.socket(fileno=options.fd)])
    return 0 if server.started else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helixweb web", description=__doc__)
    parser.add_argument("fd", type=int, help="file descriptor of a listening socket")
    parser.add_argument("--tls-certificate", help="PEM file with the whole chain")
    parser.add_argument("--tls-key", help="PEM file with its key")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

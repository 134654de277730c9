"""Which processes a site on this machine consists of, and how one sees that they are up.

The web's address is bound once, by the supervisor: a web process that is started again finds the
connections that came meanwhile, and no other program can take the port.
"""

import errno
import signal
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from helixweb.command_line.failures import CommandFailed
from helixweb.operations.asking import answers, certificate_of
from helixweb.operations.data_folder import DataFolder
from helixweb.operations.roles import BEAT, COORDINATOR, WEB, WORKER, Wanted
from helixweb.operations.supervisor import Child
from runtime.protocol.join_tokens import TOKEN_VARIABLE

_REMEDIES = {
    errno.EADDRINUSE: "stop what uses it, or choose another port with {}",
    errno.EACCES: "ports below 1024 are for root; choose another with {}",
    errno.EADDRNOTAVAIL: "give an address of this machine, 0.0.0.0 for all of them, or none for "
    "loopback only",
}
# Streams end at once, answers on their way get two seconds (web_server).
_WEB_ENDS = ((signal.SIGTERM, 5.0),)
# First quick tasks finish; SIGQUIT then ends searches: their rows have leases, and the next worker
# continues them from the best result.
_WORKER_ENDS = ((signal.SIGTERM, 1.5), (signal.SIGQUIT, 5.0))
_BEAT_ENDS = ((signal.SIGTERM, 3.0),)
COORDINATOR_GRACE_S = 5.0
_CELERY = (sys.executable, "-m", "celery", "--quiet", "-A", "helixweb")
_QUIET = ("--loglevel", "WARNING")
PROXIES_HERE = "127.0.0.0/8,::1"
_COORDINATOR_ENDS = ((signal.SIGTERM, COORDINATOR_GRACE_S + 3.0),)
# What it says itself is for one that was started by hand.
_COORDINATOR_HERE = (
    "The rest of the site goes on. If the coordinator's cluster was removed, nothing is to be "
    "deleted: end `helixweb up` and start it again, and its coordinator joins the cluster of "
    "--cluster, or the first one."
)


def listen(host: str, port: int, *, option: str) -> socket.socket:
    """Listening on one address; `option` is what chooses another port. Raises CommandFailed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise CommandFailed(
            f"cannot listen on {host}:{port}: {error.strerror or error}; {_remedy(error, option)}"
        ) from error


def check_free(host: str, port: int, *, option: str) -> None:
    """Check that a child can listen there. Raises CommandFailed."""
    listen(host, port, option=option).close()


def _remedy(error: OSError, option: str) -> str:
    other = "choose another address or port ({})"
    return _REMEDIES.get(error.errno or 0, other).format(option)


def bound(wanted: Wanted) -> list[socket.socket]:
    """The web's socket, if it runs here; that other ports are free is checked. Raises
    CommandFailed."""
    sockets = []
    if WEB in wanted.roles:
        sockets.append(listen(wanted.host, wanted.port, option="--port"))
    if COORDINATOR in wanted.roles:
        check_free(wanted.coordinator_host, wanted.coordinator_port, option="--coordinator-port")
    return sockets


def environment(wanted: Wanted, folder: DataFolder) -> dict[str, str]:
    """Environment of all child processes."""
    tls = {"HELIX_TLS_CERTIFICATE": str(wanted.tls[0])} if wanted.tls else {}
    return {
        "HELIX_DATA_DIR": str(folder.path),
        "HELIX_URL": wanted.url,
        "PYTHONUNBUFFERED": "1",
        **({"HELIX_CA": str(wanted.ca)} if wanted.ca else {}),
        **tls,
    }


def children_of(
    wanted: Wanted, folder: DataFolder, sockets: list[socket.socket], prepared: Mapping[str, Any]
) -> list[Child]:
    """Children in the order of their start; `sockets` are those of `bound`, `prepared` is the
    result of `prepare`."""
    folder.ready_file.unlink(missing_ok=True)
    children = []
    if WEB in wanted.roles:
        children.append(_web(wanted, sockets[0]))
    if WORKER in wanted.roles:
        children.append(_worker(wanted, folder))
    elif BEAT in wanted.roles:
        children.append(_beat())
    if COORDINATOR in wanted.roles:
        children.append(_coordinator(wanted, folder, prepared))
    if wanted.logs == "files":
        children = [replace(one, log=folder.logs / f"{one.name}.log") for one in children]
    return children


def _web(wanted: Wanted, listener: socket.socket) -> Child:
    command = [sys.executable, "-m", "helixweb.operations.web_server", str(listener.fileno())]
    if wanted.tls is not None:
        certificate, key = wanted.tls
        command += ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    return Child(
        name="web",
        command=tuple(command),
        ends=_WEB_ENDS,
        passes=(listener.fileno(),),
        is_up=partial(answers, f"{wanted.local_url}/readyz"),
    )


def _worker(wanted: Wanted, folder: DataFolder) -> Child:
    beat = ("-B",) if BEAT in wanted.roles else ()
    return Child(
        name="worker",
        command=(*_CELERY, "worker", *beat, *_QUIET, "--without-gossip", "--without-mingle"),
        ends=_WORKER_ENDS,
        env={"HELIX_READY_FILE": str(folder.ready_file)},
        is_up=folder.ready_file.exists,
    )


def _beat() -> Child:
    return Child(name="beat", command=(*_CELERY, "beat", *_QUIET, "--pidfile", ""), ends=_BEAT_ENDS)


def _coordinator(wanted: Wanted, folder: DataFolder, prepared: Mapping[str, Any]) -> Child:
    token = prepared.get("coordinator_token") or wanted.token

    def is_up() -> bool:
        url = wanted.server_url
        if url.startswith("https:") and not is_trusted(url, ca=wanted.issuer):
            return False
        has_joined = bool(folder.coordinator_credential) or not wanted.coordinator_here
        # Without a plan to serve it answers 503.
        return has_joined and answers(f"{wanted.coordinator_url}/health", any_status=True)

    command = [
        sys.executable, "-m", "runtime", "coordinator",
        "--server", wanted.server_url,
        "--name", wanted.name,
        "--data-dir", str(folder.coordinator),
        "--host", wanted.coordinator_host, "--port", str(wanted.coordinator_port),
        "--data-host", wanted.data_host,
        *(("--advertise", wanted.advertise) if wanted.advertise else ()),
        "--shutdown-grace", str(COORDINATOR_GRACE_S),
        *(("--trusted-proxies", PROXIES_HERE) if wanted.behind_proxy else ()),
        *(("--ca", str(wanted.issuer)) if wanted.issuer else ()),
    ]  # fmt: skip
    return Child(
        name="coordinator",
        command=tuple(command),
        ends=_COORDINATOR_ENDS,
        env={TOKEN_VARIABLE: str(token)} if token else {},
        remedy=_COORDINATOR_HERE if wanted.coordinator_here else "",
        is_up=is_up,
    )


def is_trusted(url: str, *, ca: Path | None) -> bool:
    """Whether a server answers there with a certificate that processes of this machine trust.

    Raises CommandFailed for one that they do not.
    """
    try:
        return bool(certificate_of(url, ca=ca))
    except ssl.SSLCertVerificationError as error:
        raise CommandFailed(
            f"the coordinator cannot join: the certificate of {url} is not trusted "
            f"({error.verify_message}); give its issuer with --ca FILE, and with --url the name "
            "that it is for"
        ) from error
    except OSError:
        return False

"""Options of `up`, validated together."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.session import ca_named
from helixweb.places import Addresses
from runtime.protocol.addresses import (
    address_towards,
    bracketed,
    is_wildcard,
    outward_address,
)
from runtime.protocol.join_tokens import TOKEN_VARIABLE
from runtime.protocol.trust import is_loopback

WEB, WORKER, BEAT, COORDINATOR = "web", "worker", "beat", "coordinator"
LOOPBACK = "127.0.0.1"
ROLES = (WEB, WORKER, BEAT, COORDINATOR)
_ON = frozenset({"1", "true", "yes", "on"})  # as settings.py reads it, which refuses other words


class Wanted(argparse.Namespace):
    """The options of `up`, with what follows from them and from the environment."""

    roles: frozenset[str]
    tls: tuple[Path, Path] | None
    ca: Path | None
    server: str
    token: str
    behind_proxy: bool
    host: str
    coordinator_host: str
    data_host: str
    url: str

    @property
    def needs_site(self) -> bool:
        """True if some role uses the database; a coordinator alone does not."""
        return bool(self.roles - {COORDINATOR})

    @property
    def coordinator_here(self) -> bool:
        """True if a coordinator joins the site that runs here, without a join token from a user."""
        return COORDINATOR in self.roles and WEB in self.roles

    @property
    def coordinator_alone(self) -> bool:
        """True if a coordinator joins a site that runs elsewhere."""
        return COORDINATOR in self.roles and WEB not in self.roles

    @property
    def local_url(self) -> str:
        """URL of the web site for processes of this machine."""
        return self.url_at(_dialled_here(self.host))

    def url_at(self, host: str) -> str:
        """The web's, by a name or an address of this machine."""
        return f"{'https' if self.tls else 'http'}://{bracketed(host)}:{self.port}"

    @property
    def server_url(self) -> str:
        """URL of the site for the coordinator of this machine. With https it has the name in the
        certificate; requests without it are redirected."""
        return self.server or (self.url if self.url.startswith("https:") else self.local_url)

    @property
    def issuer(self) -> Path | None:
        """Certificate that the coordinator trusts besides the system's issuers: the given one, else
        the site's own."""
        return self.ca or (self.tls[0] if self.tls else None)

    @property
    def addresses(self) -> Addresses:
        """Addresses for other commands on the same data folder."""
        return Addresses(url=self.url, port=self.port, coordinator_port=self.coordinator_port)

    @property
    def coordinator_url(self) -> str:
        """URL of the coordinator for this machine."""
        return f"http://{bracketed(_dialled_here(self.coordinator_host))}:{self.coordinator_port}"

    @property
    def openai_url(self) -> str:
        """URL of the coordinator for chat clients, of other machines if reachable."""
        host = self.data_host if is_wildcard(self.coordinator_host) else self.coordinator_host
        return f"http://{bracketed(host)}:{self.coordinator_port}/v1"


def wanted_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Wanted:
    """Parse options. Raises CommandFailed if they contradict each other."""
    wanted = Wanted(**vars(arguments))
    wanted.roles = frozenset(arguments.role or ROLES)
    wanted.tls = _tls(arguments)
    wanted.ca = arguments.ca or ca_named(environ, "HELIX_CA")
    wanted.server = (arguments.server or "").rstrip("/")
    wanted.token = arguments.token or environ.get(TOKEN_VARIABLE, "")
    wanted.behind_proxy = environ.get("HELIX_BEHIND_PROXY", "").lower() in _ON
    _set_hosts(wanted)
    url = arguments.url or environ.get("HELIX_URL", "") or _url_elsewhere(wanted)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise CommandFailed(
            f"--url is {url!r}; give where people reach the site: https://helix.example"
        )
    wanted.url = url.rstrip("/")
    _check(wanted, given=arguments, environ=environ)
    return wanted


def _check(wanted: Wanted, *, given: argparse.Namespace, environ: Mapping[str, str]) -> None:
    if wanted.coordinator_here and wanted.port == wanted.coordinator_port:
        raise CommandFailed(
            f"--port and --coordinator-port are both {wanted.port}; give them two different ports"
        )
    alone = wanted.coordinator_alone
    if alone and not wanted.server:
        raise CommandFailed(
            "a coordinator without the role web needs --server URL and, at its first start, "
            "--token hlxj_… (from the page of its cluster)"
        )
    if not alone and (wanted.server or given.token or given.name != COORDINATOR):
        raise CommandFailed("--server, --token and --name are for --role coordinator without web")
    several = wanted.needs_site and wanted.roles < set(ROLES) and given.role
    shared = environ.get("DATABASE_URL") or environ.get("DATABASE_URL_FILE")
    if several and not shared and not is_loopback(wanted.host) and WORKER not in wanted.roles:
        raise CommandFailed(
            "the web of several hosts needs a database and a broker that all of them reach; set "
            "DATABASE_URL and REDIS_URL on each"
        )


def _tls(arguments: argparse.Namespace) -> tuple[Path, Path] | None:
    certificate, key = arguments.tls_certificate, arguments.tls_key
    if (certificate is None) != (key is None):
        raise CommandFailed("--tls-certificate and --tls-key belong together; give both")
    if certificate is None or key is None:
        return None
    for path in (certificate, key):
        if not path.is_file():
            raise CommandFailed(
                f"{path} is no file; give the PEM file of the certificate or its key"
            )
    return certificate.resolve(), key.resolve()


def _set_hosts(wanted: Wanted) -> None:
    """Set the hosts at which the web and the coordinator (for clients, for stages) listen. Defaults
    are --host, or for a coordinator alone the route to its site. Raises CommandFailed."""
    given, wanted.host = wanted.host, wanted.host or LOOPBACK
    if not wanted.coordinator_host:
        routed = not given and wanted.coordinator_alone and wanted.server
        wanted.coordinator_host = _own_address(wanted.server) if routed else wanted.host
    if not wanted.data_host:
        everywhere = COORDINATOR in wanted.roles and is_wildcard(wanted.coordinator_host)
        wanted.data_host = _own_address(wanted.server) if everywhere else wanted.coordinator_host


def _url_elsewhere(wanted: Wanted) -> str:
    """The site's URL by an address that other machines can dial, unless it is for this one."""
    if not is_wildcard(wanted.host) or WEB not in wanted.roles:
        return wanted.local_url
    return wanted.url_at(_own_address(""))


def _own_address(server: str) -> str:
    """Address of this machine for other machines. Raises CommandFailed."""
    try:
        return address_towards(server) if server else outward_address()
    except OSError as error:
        raise CommandFailed(
            "this machine has no default route, so the address that others dial is not known "
            f"({error}); give it with --host or --data-host, and with --url the site's"
        ) from error


def _dialled_here(host: str) -> str:
    """An address that listens everywhere is dialled here."""
    if is_wildcard(host):
        return "::1" if ":" in host else LOOPBACK
    return host

"""Database, broker and worker of the site, and its clocks. Needs Django set up."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connection
from django.utils import timezone
from redis import Redis, RedisError

from helixweb.operations import health
from helixweb.operations.data_folder import DataFolder
from helixweb.operations.doctor.findings import Finding, failed, note, ok, warning
from helixweb.operations.migrating import is_empty, pending
from helixweb.operations.models import Pulse
from helixweb.operations.schema_version import NewerDatabase
from helixweb.versions import product_version
from runtime.protocol.trust import stays_here

SKEW_S = 2.0
STARTS_WITHIN_S = 60.0  # on a busy machine, with the backup before an upgrade


def site_settings() -> Iterator[Finding]:
    """Findings of Django's deployment check, for a site that other machines reach."""
    if not settings.HELIX_URL.startswith("https://"):
        if stays_here(settings.HELIX_URL):
            yield ok("settings", f"{settings.HELIX_URL} is for this machine alone")
        else:
            yield warning(
                "settings",
                f"{settings.HELIX_URL} is plain http: passwords and tokens travel in clear",
                "set HELIX_URL=https://… and put a TLS proxy in front (packaging/proxies), or "
                "give `up` --tls-certificate and --tls-key",
            )
        return
    found = checks.run_checks(include_deployment_checks=True)
    for message in found:
        remedy = message.hint or f"see {message.id} in Django's documentation"
        yield warning("settings", " ".join(message.msg.split()), remedy)
    if not found:
        yield ok("settings", "the deployment check has nothing to say")


def database() -> Iterator[Finding]:
    """It answers, is whole, and has the tables of this version."""
    try:
        connection.ensure_connection()
        if is_empty():
            yield note("database", "there is no site in it yet", "`helixweb up` makes one")
            return
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA quick_check(1)")
                said = str(cursor.fetchone()[0])
            if said != "ok":
                remedy = "stop the site and `helixweb restore` the last backup"
                yield failed("database", f"the file is damaged: {said}", remedy)
                return
        yield ok("database", f"{connection.vendor} answers")
        due = pending()
    except NewerDatabase as error:
        yield failed("migrations", str(error), "install the newer version")
    except DatabaseError as error:
        said = " ".join(str(error).split())
        yield failed("database", said, "start the database, or correct DATABASE_URL")
    else:
        if due:
            remedy = "`helixweb up` applies them, after a backup"
            yield failed("migrations", f"{due} are due", remedy)
        else:
            yield ok("migrations", "all are applied")


def broker() -> Iterator[Finding]:
    """Takes messages."""
    kind = "Redis" if settings.REDIS_URL else "the queue folder"
    if fault := health.broker_fault():
        yield failed("broker", f"{kind}: {fault}", "start it, or correct REDIS_URL")
    else:
        yield ok("broker", f"{kind} takes messages")


def worker() -> Iterator[Finding]:
    """Check that workers execute beat's tasks and have this version."""
    pulses = list(Pulse.objects.order_by("-at"))
    now = timezone.now()
    lively = [pulse for pulse in pulses if pulse.at > now - health.SILENT_AFTER]
    if not lively and (said := _begins(now.timestamp())):
        yield note("worker", said, "ask again in half a minute")
    elif not lively:
        last = f"last heard of at {pulses[0].at:%Y-%m-%d %H:%M:%S} UTC" if pulses else "never seen"
        remedy = "`helixweb up` runs one (--role worker --role beat); see its log"
        yield failed("worker", f"no worker beats; {last}", remedy)
    for pulse in lively:
        if pulse.version != product_version():
            said = f"{pulse.host} runs {pulse.version}, this is {product_version()}"
            yield warning("worker", said, "restart it with the same version")
        else:
            yield ok("worker", f"{pulse.host} beats")


def _begins(now_s: float) -> str:
    """A message if a worker of this machine started too recently to beat; else empty."""
    began = DataFolder(path=Path(settings.DATA_DIR)).worker_began_s()
    if began is None:
        return ""
    began_s, is_ready = began
    age_s = now_s - began_s
    patience_s = health.SILENT_AFTER.total_seconds() if is_ready else STARTS_WITHIN_S
    if not 0 <= age_s < patience_s:
        return ""
    if is_ready:
        return f"the worker started {age_s:.0f} s ago and did not beat yet"
    return f"the worker was started {age_s:.0f} s ago and does not take tasks yet"


def clocks() -> Iterator[Finding]:
    """Check that the clocks of database and broker agree with this machine's."""
    if settings.REDIS_URL:
        with (
            contextlib.suppress(RedisError, OSError),  # reported by `broker`
            Redis.from_url(settings.REDIS_URL, socket_timeout=1.0) as redis,
        ):
            seconds, micros = redis.time()
            yield skew("Redis", seconds + micros / 1e6 - time.time())
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            yield skew("the database", float(cursor.fetchone()[0]) - time.time())


def skew(name: str, skew_s: float) -> Finding:
    """Finding for a clock difference: leases and expiry times are wrong by as much."""
    if abs(skew_s) > SKEW_S:
        said = f"the clock of {name} is {skew_s:+.1f} s off this machine's"
        return warning("clock", said, "keep both machines' clocks right by NTP (chrony, timesyncd)")
    return ok("clock", f"{name} is {skew_s:+.2f} s off")

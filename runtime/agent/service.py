"""`helix-agent join … --service`: the agent as a systemd unit that starts at boot.

For root a system unit with few rights, for others a unit of the user that lingers. Linux only.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.agent.gpus import VISIBLE
from runtime.protocol.home import home_folder
from runtime.whole_file import write_whole

UNIT = "helix-agent.service"
STATE_DIR = Path("/var/lib/helix-agent")  # systemd's StateDirectory of the system unit
# What the unit inherits of the environment that makes it: GPUs, the hub, proxies.
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
INHERITED = (
    *VISIBLE, "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", *_PROXIES, *map(str.upper, _PROXIES)
)  # fmt: skip
_SYSTEMD_RUNS = Path("/run/systemd/system")
_SYSTEM_UNITS = Path("/etc/systemd/system")
_GPU_GROUPS = ("video", "render")  # owners of /dev/nvidia* and /dev/dri/*
_UNIT_TEXT = """\
[Unit]
Description=HelixWeb agent
Wants=network-online.target
After=network-online.target nvidia-persistenced.service

[Service]
Type=exec
{environment}ExecStart={command}
Restart=on-failure
RestartSec=5
# 2: it was called wrongly, or removed from its cluster; starting it again changes nothing.
RestartPreventExitStatus=2
# SIGTERM to the agent alone: it lets requests go on elsewhere first.
KillMode=mixed
TimeoutStopSec=60
LimitMEMLOCK=infinity
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictSUIDSGID=yes
{rights}
[Install]
WantedBy={target}
"""
_SYSTEM_RIGHTS = """\
# A user that systemd makes; its state is in /var/lib/helix-agent.
DynamicUser=yes
User=helix-agent
StateDirectory=helix-agent
StateDirectoryMode=0700
SupplementaryGroups={groups}
CapabilityBoundingSet=
# GPUs are devices, so devices are not private here.
DevicePolicy=auto
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHome=read-only
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
SystemCallArchitectures=native
"""


class ServiceRefused(Exception):
    """The unit cannot be made or started; the message says why and what to do."""


def is_root() -> bool:
    """True if this process may make units of the system."""
    return os.geteuid() == 0


def check_systemd() -> None:
    """Raises ServiceRefused where systemd does not run."""
    if not _SYSTEMD_RUNS.is_dir() or shutil.which("systemctl") is None:
        raise ServiceRefused(
            "systemd does not run on this machine; leave --service out, and have what starts "
            "programs here run the same command"
        )


def stop_running() -> bool:
    """Stop the unit, which holds the data directory; returns whether it ran."""
    is_active = _systemctl("is-active", "--quiet")
    _systemctl("stop")
    return is_active


def start_again() -> None:
    """Start the unit as it was before `stop_running`."""
    _systemctl("start")


def keep_certificates(ca: Path, data_dir: Path) -> Path:
    """Copy the file into the data directory, where the unit can read it; returns the copy."""
    return Path(shutil.copyfile(ca, data_dir / "ca.pem"))


def unit_text(
    options: Sequence[str], *, for_system: bool, environment_file: Path | None = None
) -> str:
    """The unit that runs `helix-agent join` with `options`, which hold no token."""
    words = [str(Path(sys.prefix) / "bin" / "helix-agent"), "join", *options]
    environment = f"Environment={_quoted(f'HOME={STATE_DIR}')}\n" if for_system else ""
    if environment_file is not None:
        environment += "EnvironmentFile={}\n".format(str(environment_file).replace("%", "%%"))
    return _UNIT_TEXT.format(
        environment=environment,
        command=" ".join(_quoted(word.replace("$", "$$")) for word in words),
        rights=_SYSTEM_RIGHTS.format(groups=" ".join(_gpu_groups())) if for_system else "",
        target="multi-user.target" if for_system else "default.target",
    )


def install(options: Sequence[str], *, environ: Mapping[str, str]) -> str:
    """Write, enable and start the unit, again if it runs; returns what a person must know.

    Units can be read by every user, so what it inherits of `environ` is in a file beside it, of
    mode 0600: tokens, and proxies with passwords. Raises ServiceRefused.
    """
    for_system = is_root()
    if for_system:  # systemd gives all of it to the unit's user if the folder is not his
        os.chown(STATE_DIR, 0, 0)
    path = _unit_folder(for_system=for_system, environ=environ) / UNIT
    scope = [] if for_system else ["--user"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        inherited = _write_inherited(path.with_suffix(".env"), environ)
        path.write_text(unit_text(options, for_system=for_system, environment_file=inherited))
    except OSError as error:
        raise ServiceRefused(f"cannot write {path}: {error}") from error
    _run("systemctl", *scope, "daemon-reload")
    _run("systemctl", *scope, "enable", UNIT)
    _run("systemctl", *scope, "restart", UNIT)
    if not for_system:
        _run("loginctl", "enable-linger")  # starts it at boot, not at the first login
    control, log = (" ".join([program, *scope]) for program in ("systemctl", "journalctl"))
    return (
        f"{path} runs and starts at boot. Its log: {log} -u {UNIT}. "
        f"To end it: {control} disable --now {UNIT}"
    )


def _write_inherited(path: Path, environ: Mapping[str, str]) -> Path | None:
    """None, and no file, if nothing of INHERITED is set. Raises OSError."""
    inherited = {name: environ[name] for name in INHERITED if name in environ}
    if not inherited:
        path.unlink(missing_ok=True)
        return None
    # Within double quotes as in a shell (systemd.exec(5), EnvironmentFile).
    text = "".join(
        '{}="{}"\n'.format(name, re.sub(r'(["\\$`])', r"\\\1", value))
        for name, value in inherited.items()
    )
    write_whole(path, os.fsencode(text))
    return path


def _systemctl(*words: str) -> bool:
    """Of the unit, which may not exist; returns whether it succeeded."""
    scope = [] if is_root() else ["--user"]
    done = subprocess.run(["systemctl", *scope, *words, UNIT], capture_output=True, check=False)
    return done.returncode == 0


def _unit_folder(*, for_system: bool, environ: Mapping[str, str]) -> Path:
    if for_system:
        return _SYSTEM_UNITS
    base = environ.get("XDG_CONFIG_HOME") or str(home_folder() / ".config")
    return Path(base) / "systemd" / "user"


def _run(*command: str) -> None:
    """Raises ServiceRefused."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServiceRefused(f"cannot run {command[0]}: {error}") from error
    if done.returncode != 0:
        raise ServiceRefused(
            f"`{' '.join(command)}` failed with status {done.returncode}: "
            f"{done.stderr.strip() or 'it printed nothing'}; repair that, then run the same again: "
            "this machine has joined already, so no new token is needed"
        )


def _gpu_groups() -> list[str]:
    import grp  # POSIX only, as systemd is

    known = {group.gr_name for group in grp.getgrall()}
    return [name for name in _GPU_GROUPS if name in known]


def _quoted(word: str) -> str:
    """As a unit file has it (systemd.syntax(7))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'

"""`/join.sh`: one line that makes a bare machine a node, with an environment of its own."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from helixweb.inventory.models import Cluster, Node
from helixweb.inventory.services import joining, records
from helixweb.operations.join_script import OLDEST_PYTHON, source_archive
from tests.helixweb.looking import answered, contains

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(db: None) -> str:
    """As a machine without credentials gets it."""
    answer = answered(Client().get("/join.sh"), 200)
    return answer.content.decode()


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose Python notes what is asked of it, and installs nothing."""
    programs, made = tmp_path / "programs", tmp_path / "made"
    log = tmp_path / "log"
    program(made, "pip", f'echo "pip $*" >> {log}; [ "$1" != show ]')
    agent = 'echo "${HELIX_JOIN_TOKEN:+HELIX_JOIN_TOKEN=$HELIX_JOIN_TOKEN }helix-agent $*"'
    program(made, "helix-agent", f"{agent} >> {log}")
    program(
        programs,
        "python3",
        f'[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        f'echo "python3 $*" >> {log}\nmkdir -p "$3/bin" && cp {made}/* "$3/bin"',
    )
    program(programs, "id", "echo 1000")
    return {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(tmp_path / "home folder"),
        "PIP_NO_INDEX": "1",
    }


def run(
    script: str, machine: dict[str, str], *words: str, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["/bin/sh", "-s", "--", *words],
        input=script, env=machine, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stderr
    return done


@pytest.mark.processes
def test_a_bare_machine_gets_an_environment_of_its_own_and_joins(
    script: str, machine: dict[str, str], tmp_path: Path
) -> None:
    words = ("--region", "the attic")
    run(script, machine, "--token", "hlxj_x", *words)
    folder = tmp_path / "home folder" / ".local" / "share" / "helix-agent"
    url = "http://127.0.0.1:8000"
    digest = hashlib.sha256(source_archive()).hexdigest()
    source = f"helixweb @ {url}/join/helixweb.tar.gz#sha256={digest}"
    log = (tmp_path / "log").read_text().splitlines()
    assert log == [
        f"python3 -m venv {folder}",
        "pip install --quiet setuptools>=77",
        f"pip install --quiet --force-reinstall --no-deps --no-build-isolation {source}",
        "pip install --quiet helixweb[agent]",
        f"HELIX_JOIN_TOKEN=hlxj_x helix-agent join {url} {' '.join(words)}",
    ]
    run(script, machine)
    assert not [line for line in (tmp_path / "log").read_text().splitlines()[5:] if "venv" in line]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--token", "{}"), ("--token={}",)])
def test_the_process_list_shows_no_token_while_the_agent_is_installed(
    script: str, machine: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    token = f"hlxj_{uuid.uuid4().hex}"
    program(tmp_path / "made", "pip", f"ps -A -ww -o args= >> {tmp_path}/processes")
    run(script, machine, "--name", "gpu 7", *(word.format(token) for word in words))
    shown = (tmp_path / "processes").read_text()
    assert "--name gpu 7" in shown
    assert token not in shown
    assert (tmp_path / "log").read_text().splitlines()[-1] == (
        f"HELIX_JOIN_TOKEN={token} helix-agent join http://127.0.0.1:8000 --name gpu 7"
    )


@pytest.mark.parametrize("words", [("--ca", "my ca.pem"), ("--ca=my ca.pem", "--service")])
def test_a_private_authority_is_trusted_for_what_comes_from_the_site_alone(
    script: str, machine: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    run(script, machine, "--token", "hlxj_x", *words)
    log = (tmp_path / "log").read_text().splitlines()
    assert [line for line in log if "--cert my ca.pem" in line] == [
        line for line in log if "helixweb @" in line
    ]
    assert log[-1].endswith(" ".join(words))


def test_a_machine_whose_python_is_too_old_is_told_what_to_install(
    script: str, machine: dict[str, str], tmp_path: Path
) -> None:
    program(tmp_path / "programs", "python3", "exit 1")
    for newer in ("python3.11", "python3.12", "python3.13", "python3.14", "uv"):
        program(tmp_path / "programs", newer, "exit 1")
    (tmp_path / "programs" / "uv").unlink()
    done = run(script, machine, "--token", "hlxj_x", expect=2)
    contains(done.stderr, ".".join(map(str, OLDEST_PYTHON)), "PYTHON=")


def test_root_makes_readable_programs(script: str, machine: dict[str, str], tmp_path: Path) -> None:
    programs, log = tmp_path / "programs", tmp_path / "log"
    program(programs, "id", "echo 0")
    for python in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        program(programs, python, "exit 1")
    note = f'echo "$(basename "$0") $(umask) $UV_PYTHON_INSTALL_DIR" >> {log}'
    for name in ("pip", "helix-agent"):
        program(tmp_path / "made", name, note)
    folder = tmp_path / "agent"
    program(programs, "uv", f"{note}\nmkdir -p {folder}/bin && cp {tmp_path}/made/* {folder}/bin")
    machine["HELIX_AGENT_ENV"] = str(folder)
    run(f"umask 077\n{script}", machine, "--token", "hlxj_x", "--service")
    told = log.read_text().splitlines()
    python = tmp_path / "agent-python"
    assert set(told[:-1]) == {f"uv 0022 {python}", f"pip 0022 {python}"}
    assert told[-1].startswith("helix-agent 0077"), "its own files are for root alone"


def test_no_failed_install_joins(script: str, machine: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "made", "pip", "exit 1")
    done = run(script, machine, "--token", "hlxj_x", expect=2)
    assert "pip could not install" in done.stderr
    assert "helix-agent join" not in (tmp_path / "log").read_text()


def test_the_source_is_that_of_this_site_the_same_each_time(db: None) -> None:
    content = Client().get("/join/helixweb.tar.gz").content
    assert content == source_archive.__wrapped__()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "runtime/agent/join.py"} <= names
    contains(names, "runtime/models/compiled/module.c", "templates/operations/join.sh")
    assert not [name for name in names if name.endswith((".so", ".pyc")) or "tests" in name]


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_the_line_of_a_cluster_installs_the_agent_and_joins(
    live_server: LiveServer, settings: Any, user: Any, tmp_path: Path
) -> None:
    """By curl, a real environment and pip; packages of others are those of where tests run.

    Without what is compiled: that takes a minute, and machines without a compiler are served.
    """
    settings.HELIX_URL = live_server.url
    cluster = records.create(Cluster, name="home")
    token = joining.create_join_token(cluster, "node", user)
    line = joining.join_command("node", token.secret, name="tower", region="the attic")
    others = [path for path in sys.path if path.endswith("site-packages")]
    packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (tmp_path / "others.pth").write_text("\n".join(others))
    program(
        tmp_path,
        "python",
        f'{sys.executable} "$@" || exit 1\n'
        f'[ "$1" = -c ] && exit 0\n'
        f'cp {tmp_path}/others.pth "$3"/{packages}/ && rm -rf "$3"/{packages}/setuptools*',
    )
    folder = tmp_path / "agent"
    known = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        ["/bin/sh", "-c", f"{line} --join-only --memory 20G"],
        env=known | {
            "HOME": str(tmp_path), "HELIX_AGENT_ENV": str(folder), "PIP_NO_INDEX": "1",
            "CC": "false", "PYTHON": str(tmp_path / "python"),
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (node,) = Node.unscoped.all()
    assert (node.name, node.region) == ("tower", "the attic")
    assert node.hardware["memory_budget_bytes"] == 20 * 10**9
    # Other machines can install from a site that was installed like this.
    told = subprocess.run(
        [
            folder / "bin" / "python", "-c",
            "import django, helixweb.operations.join_script as one; django.setup();"
            "print(one.__file__, one.hashlib.sha256(one.source_archive()).hexdigest())",
        ],
        env=known | {
            "DJANGO_SETTINGS_MODULE": "helixweb.settings", "HELIX_DATA_DIR": str(tmp_path / "data"),
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    ).stdout.split()  # fmt: skip
    assert told[0].startswith(str(folder))
    assert told[1] == hashlib.sha256(source_archive()).hexdigest()

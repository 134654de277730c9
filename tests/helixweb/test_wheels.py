"""Other programs read what commands give: pip, without internet, from `helixweb wheels serve`; and
shells, at their start, what `helixweb completion` prints."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import httpx
import pytest

from helixweb.command_line.main import main
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations.commands import wheels
from tests.answering import answering
from tests.installed import installed


def make_wheel(folder: Path, name: str, *, requires: str = "") -> None:
    """A package that is nothing but its name."""
    project = name.replace("-", "_")
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    about += f"Requires-Dist: {requires}\n" if requires else ""
    inside = f"{project}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{project}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{project}.py", "")
        wheel.writestr(f"{inside}/METADATA", about)
        wheel.writestr(
            f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{inside}/RECORD", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "wheels"
    path.mkdir()
    make_wheel(path, "first-package", requires="Second.Package>=1")
    make_wheel(path, "second-package")
    (path / "secret.txt").write_text("hush")
    return path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with wheels.make_server(folder, "127.0.0.1", 0) as server, answering(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.processes
def test_pip_installs_a_package_and_its_needs_from_there_alone(url: str, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    subprocess.run(
        [
            sys.executable, "-m", "pip", "--isolated", "install", "-q", "--index-url",
            f"{url}/simple/", "--target", str(target), "--no-cache-dir", "first-package",
        ],
        check=True, timeout=300, env={"PIP_CONFIG_FILE": "/dev/null", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (target / "first_package.py").exists()
    assert (target / "second_package.py").exists()


@pytest.mark.parametrize(
    "path",
    ["/", "/wheels/secret.txt", "/wheels/..%2Fsecret.txt", "/wheels/%2e%2e/x", "/simple/none/"],
)
def test_nothing_but_wheels_is_given_out(path: str, url: str) -> None:
    assert httpx.get(url + path, timeout=60).status_code == 404


def test_projects_are_found_by_their_normal_names(folder: Path, url: str) -> None:
    (folder / "Odd_Name.x-2.0-1-cp311-cp311-linux_x86_64.whl").touch()
    listed = httpx.get(f"{url}/simple/", timeout=60).text
    assert set(re.findall(r'href="([^"]+)/"', listed)) == {
        "first-package", "second-package", "odd-name-x",
    }  # fmt: skip


def test_a_folder_without_wheels_says_how_to_fill_it(tmp_path: Path) -> None:
    err = StringIO()
    around = Surroundings(out=StringIO(), err=err, environ={})
    assert main(["wheels", "serve", str(tmp_path)], surroundings=around) == 1
    assert "helixweb wheels gather" in err.getvalue()


@pytest.mark.processes
def test_gathering_asks_pip_for_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        asked.append(command[3:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(wheels.subprocess, "run", run)
    around = Surroundings(out=StringIO(), err=StringIO(), environ={})
    main(["wheels", "gather", str(tmp_path), "--extras", "agent,s3"], surroundings=around)
    source = ["--from", str(tmp_path / "site.whl")]
    main(["wheels", "gather", str(tmp_path), *source, "--pip=--no-index"], surroundings=around)
    assert asked[0][-1] == f"helixweb[agent,s3]=={wheels.product_version()}"
    assert asked[1][-1] == f"helixweb[agent] @ {(tmp_path / 'site.whl').as_uri()}"
    assert "--no-index" in asked[1]


WITHIN_S = 300.0
# What is typed, and what each shell says it would offer.
ASKED = {
    "bash": 'eval "$(helixweb completion bash)"; COMP_LINE="helixweb pla"; COMP_POINT=12; '
    'COMP_TYPE=9; _python_argcomplete helixweb; printf "%s\\n" "${COMPREPLY[@]}"',
    "fish": 'helixweb completion fish | source; complete -C "helixweb pla"',
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of somebody without any settings of a shell, whose `helixweb` is this one."""
    program = tmp_path / "bin" / "helixweb"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m helixweb.command_line "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def said(environ: dict[str, str], *command: str) -> str:
    installed(command[0], package=command[0])
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.processes
@pytest.mark.parametrize("shell", ASKED)
def test_a_shell_completes_a_command(environ: dict[str, str], shell: str) -> None:
    offered = said(environ, shell, "-c", ASKED[shell]).splitlines()
    assert [line.split("\t")[0].strip() for line in offered] == ["plan"]


@pytest.mark.processes
@pytest.mark.parametrize("begun", ["", "autoload -Uz compinit; compinit -i; "])
def test_zsh_knows_the_command_begun_or_not(environ: dict[str, str], begun: str) -> None:
    asked = 'eval "$(helixweb completion zsh)"; print -r -- "${_comps[helixweb]}"'
    assert said(environ, "zsh", "-f", "-c", begun + asked).strip() == "_python_argcomplete"

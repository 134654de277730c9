"""Machines without internet install from `helixweb wheels serve`."""

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
def test_gathering_asks_pip_for_this_version_or_for_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

"""Real servers and a real browser for the end-to-end tests; what is missing is a named skip.

HELIX_TEST_REQUIRE (comma-separated: browser, postgres, redis) turns such a skip into a failure.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from helixweb.demo import local_cluster
from helixweb.demo.processes import free_port
from tests.e2e import chromium
from tests.e2e.browsed_site import BrowsedSite


def require(what: str, *, found: bool, remedy: str) -> None:
    """Skip with a reason where `what` is missing, or fail where it must not be."""
    if found:
        return
    if what in os.environ.get("HELIX_TEST_REQUIRE", "").split(","):
        pytest.fail(f"{what} is required here but missing; {remedy}")
    pytest.skip(f"{what} is not installed; {remedy}")


def _postgres_bin() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of this test run alone."""
    binaries = _postgres_bin()
    require("postgres", found=binaries is not None, remedy="apt-get install postgresql")
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="helixweb-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user = ["runuser", "-u", "postgres", "--"]
    port = free_port()
    data = folder / "data"

    def control(*arguments: str) -> None:
        subprocess.run(
            [*as_user, str(binaries / "pg_ctl"), "-D", str(data), *arguments],
            check=True, stdout=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip

    subprocess.run(
        [*as_user, str(binaries / "initdb"), "-D", str(data), "-U", "helix", "-A", "trust"],
        check=True, stdout=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control("-o", settings, "-l", str(folder / "log"), "-w", "start")
    try:
        yield f"postgres://helix@127.0.0.1:{port}/postgres"
    finally:
        control("-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis server of this test run alone."""
    binary = shutil.which("redis-server")
    require("redis", found=binary is not None, remedy="apt-get install redis-server")
    assert binary is not None
    folder = Path(tempfile.mkdtemp(prefix="helixweb-redis-"))
    port = free_port()
    server = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def trained_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with the demo's small trained Llama in it."""
    models = tmp_path_factory.mktemp("models")
    path = models / local_cluster.MODEL
    subprocess.run(
        [sys.executable, "-m", "runtime", "checkpoint", "--output", str(path)],
        check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    (path / "complete").touch()
    return models


@pytest.fixture(scope="session")
def browsed_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowsedSite]:
    """A site with its worker, for worlds that tests make in it."""
    folder = tmp_path_factory.mktemp("browsed")
    with BrowsedSite.started(folder) as site:
        site.start_worker()
        yield site


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    """Headless Chromium, 1280 x 900."""
    require("browser", found=chromium.is_installed(), remedy=chromium.REMEDY)
    with chromium.headless_chromium() as chrome:
        yield chrome

"""Real servers and a real browser for the end-to-end tests."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from helixweb.demo import local_cluster
from tests.e2e import chromium
from tests.e2e.browsed_site import BrowsedSite
from tests.e2e.servers import PostgresServer, RedisServer, postgres_binaries
from tests.installed import require
from tests.made_once import made_once


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    binaries = postgres_binaries()
    require("postgres", found=binaries is not None, remedy="apt-get install postgresql")
    assert binaries is not None
    with contextlib.closing(PostgresServer(binaries)) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    binary = shutil.which("redis-server")
    require("redis", found=binary is not None, remedy="apt-get install redis-server")
    assert binary is not None
    with contextlib.closing(RedisServer(binary)) as server:
        yield server


@pytest.fixture(
    scope="session",
    params=[
        "sqlite-filesystem",
        pytest.param(
            "postgres-redis", marks=[pytest.mark.postgres, pytest.mark.redis, pytest.mark.long]
        ),
    ],
)
def services(request: pytest.FixtureRequest) -> dict[str, str]:
    """The only variables that differ between the two pairs."""
    if request.param == "sqlite-filesystem":
        return {}
    servers = {"DATABASE_URL": "postgres", "REDIS_URL": "redis"}
    return {name: request.getfixturevalue(server).url for name, server in servers.items()}


@pytest.fixture(scope="session")
def trained_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with the demo's small trained Llama in it."""

    def make(models: Path) -> None:
        path = models / local_cluster.TINY.name
        subprocess.run(
            [sys.executable, "-m", "runtime", "checkpoint", "--output", str(path)],
            check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        (path / "complete").touch()

    return made_once(tmp_path_factory, "models", make)


@pytest.fixture
def browsed_site(tmp_path: Path, blank_sqlite: Path) -> Iterator[BrowsedSite]:
    """A site with its worker, for a world that a test makes in it; its alerts are looked after for
    as long as it stands."""
    with BrowsedSite.started(tmp_path, blank_sqlite) as site:
        site.start_worker()
        yield site


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    """Headless Chromium, 1280 x 900."""
    require("browser", found=chromium.is_installed(), remedy=chromium.REMEDY)
    with chromium.headless_chromium() as chrome:
        yield chrome

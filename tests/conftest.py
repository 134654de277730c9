"""What every test shares: examples, tiers, workers, and a checkout that stays as it was."""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.e2e import blank_database
from tests.made_once import made_once

settings.register_profile(
    "helixweb",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("helixweb"), max_examples=25)
settings.load_profile("helixweb")

# Modules and tests that are collected stay: no use in looking through them again and again.
gc.disable()

# On every CPU, so that what one stage computes equals what several do, to the bit.
os.environ.setdefault("HELIX_CPU_PRODUCTS", "reproducible")

ROOT = Path(__file__).parents[1]

# No certificates: no test asks a server of the Internet, and reading the system's 140 issuers takes
# each of a thousand clients 25 ms.
os.environ["SSL_CERT_DIR"] = str(ROOT / "tests")

# Nor through a proxy: servers of tests are on this machine.
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]

PLANNER = ROOT / "tests" / "planner"
_BUILT_DOCS = {ROOT / "docs" / "_build", ROOT / "docs" / "generated"}  # a test builds the site
_TOOLS_OWN = {".git", ".venv", ".venv-vllm", ".hypothesis", "__pycache__"} | {
    f".{tool}_cache" for tool in ("import_linter", "mypy", "pytest", "ruff")
}
_before = pytest.StashKey[dict[str, tuple[int, int]]]()
_changed = pytest.StashKey[list[str]]()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _files() -> Iterator[tuple[str, tuple[int, int]]]:
    """Each file of the checkout with its time of change and size; caches of tools left out."""
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [
            name
            for name in inner
            if name not in _TOOLS_OWN and Path(folder, name) not in _BUILT_DOCS
        ]
        for name in names:
            path = Path(folder, name)
            if path.exists():
                status = path.stat()
                yield str(path.relative_to(ROOT)), (status.st_mtime_ns, status.st_size)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist has it
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than cores, as some tests wait; not more than memory carries."""
    return min(12, (os.cpu_count() or 1) + 1)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # marks before -m selects
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Mark tests with servers or browsers as `processes`. Sort files for pytest-xdist, which hands
    them out whole and in this order: what takes minutes first, so that all workers end together,
    and those of the planner last: they wait for nothing, so no core is idle at the end.
    """
    rank: dict[Path, int] = {}
    for item in items:
        if any(item.get_closest_marker(name) for name in ("e2e", "browser", "postgres", "redis")):
            item.add_marker("processes")
        marks = sum(item.get_closest_marker(name) is not None for name in ("e2e", "processes"))
        rank[item.path] = min(-marks, rank.get(item.path, 0))
    yield  # pytest-django sorts by use of the database
    if _is_worker(config):
        items.sort(key=lambda item: (rank[item.path], PLANNER in item.path.parents))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Look for cycles in what is made from here on, also in the parent of the workers."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not _is_worker(session.config):
        session.config.stash[_before] = dict(_files())


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a run fails that changed the checkout; elsewhere the change may be the developer's."""
    config = session.config
    if _is_worker(config):
        return
    before, after = config.stash[_before], dict(_files())
    config.stash[_changed] = sorted(
        name for name in before | after if before.get(name) != after.get(name)
    )
    if config.stash[_changed] and os.environ.get("CI"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    changed = config.stash.get(_changed, [])
    if changed:
        terminalreporter.section("files of the checkout that changed while the tests ran")
        for name in changed[:20]:
            terminalreporter.write_line(name)
        if len(changed) > 20:
            terminalreporter.write_line(f"and {len(changed) - 20} more")


@pytest.fixture(scope="session")
def blank_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a site in which nothing is yet, to be copied."""
    folder = made_once(tmp_path_factory, "blank-database", blank_database.make)
    return folder / blank_database.NAME

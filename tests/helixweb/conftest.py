"""What the web's tests share: people, clients, and a problem small enough to read."""

import copy
import inspect
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import connections, transaction
from django.test import Client, TransactionTestCase, override_settings
from django.utils import timezone
from rest_framework.test import APIClient
from whitenoise.middleware import WhiteNoiseMiddleware

from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.celery import app
from helixweb.deployment.services import repairing
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster
from helixweb.planning.models import Plan
from planner.plan_options import PlanOptions
from planner.serialization import PROBLEM_FORMAT, problem_from_dict
from tests.e2e import blank_database
from tests.helixweb.instance_doubles import Instances
from tests.helixweb.looking import api_of, browser_of
from tests.helixweb.process_doubles import FakeCluster
from tests.helixweb.recorded import recorded
from tests.helixweb.searching import begun, searched
from tests.helixweb.site_in_process import Shell, new_key
from tests.helixweb.stream_readers import Reader
from tests.made_once import made_once

LINK = {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 1e-4}

TINY_PROBLEM: dict[str, Any] = {
    "format": PROBLEM_FORMAT,
    "name": "tiny",
    "source": "made for tests",
    "model": {
        "name": "tiny-llama", "num_layers": 4, "activation_bytes_per_token": 256,
        "token_bytes": 4, "bytes_per_layer": 1e6,
    },
    "workload": {"mean_prompt_tokens": 64, "mean_output_tokens": 32},
    "compute_profiles": {
        "big": {
            "gpu": "A100",
            "vram_bytes": 8e6,
            "max_layers": 3,
            "tokens_per_s": [400.0, 200.0, 100.0],
            "kv_capacity_token_layers": [4000.0, 3000.0, 2000.0],
        },
        "small": {
            "gpu": "T4", "vram_bytes": 4e6, "max_layers": 2, "tokens_per_s": [150.0, 70.0],
            "kv_capacity_token_layers": [1000.0, 500.0],
        },
    },
    "nodes": [
        {"name": "tower", "region": "home", "compute_profile": "big"},
        {"name": "laptop", "region": "home", "compute_profile": "small"},
        {"name": "mini", "region": "away", "compute_profile": "small"},
    ],
    "coordinator": {"region": "home"},
    "network": {
        "region_pairs": [
            {"source": "home", "target": "home", **LINK},
            {"source": "home", "target": "away", **LINK},
            {"source": "away", "target": "home", **LINK},
        ],
        "links": [
            {
                "source": "tower",
                "target": "mini",
                "bandwidth_bytes_per_s": 12.5e6,
                "latency_s": 0.02,
            }
        ],
    },
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines as Django runs asynchronous views, in this thread."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    async_to_sync(test)(
        **{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    )
    return True


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    tmp_path_factory: pytest.TempPathFactory, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """SQLite in a file, as a site has it.

    In memory threads would share one cache, where who meets another's lock is refused at once
    ("database table is locked") and the timeout of the settings does not count. Workers of
    pytest-xdist copy one that was migrated once.
    """
    for connection in connections.all():
        if connection.vendor == "sqlite":
            path = tmp_path_factory.mktemp("database") / "test.sqlite3"
            connection.settings_dict["TEST"]["NAME"] = str(path)
            if "PYTEST_XDIST_WORKER" in os.environ:
                blank = made_once(tmp_path_factory, "blank-database", blank_database.make)
                shutil.copy(blank / blank_database.NAME, path)


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """True where the database was copied: nothing is left to migrate then."""
    return "PYTEST_XDIST_WORKER" in os.environ and connections["default"].vendor == "sqlite"


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_looked_up_once() -> Iterator[None]:
    """Every client of every test makes the middleware anew, which reads the folders of all apps."""
    look = WhiteNoiseMiddleware.add_files_from_finders
    found: dict[str, Any] = {}

    def add_files(self: WhiteNoiseMiddleware) -> None:
        if not found:
            look(self)
            found.update(self.files)
        self.files.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", add_files)
        yield


@pytest.fixture(scope="module")
def rows_of_module(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """What fixtures of a module write is there for each of its tests: they roll back to it."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def world_of_roles(rows_of_module: None) -> Any:
    from tests.helixweb.test_role_matrix import World

    return recorded(lambda: World())


@pytest.fixture
def world(db: None, world_of_roles: Any) -> Any:
    """A row of each collection, and people of each role: `World` of test_role_matrix.py."""
    return world_of_roles


# What migrations write of models and people's rights to them: the same after every test.
_KEPT_TABLES = {"django_content_type", "auth_permission", "django_migrations"}


@pytest.fixture(scope="session", autouse=True)
def _tests_that_commit_empty_tables() -> Iterator[None]:
    """Instead of Django's flush, which truncates a hundred tables on PostgreSQL, full or not, and
    makes every right anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", _empty_tables)
        yield


def _empty_tables(case: TransactionTestCase) -> None:
    for alias in case._databases_names(include_mirrors=False):
        connection = connections[alias]
        tables = set(connection.introspection.django_table_names(include_views=False))
        quoted = map(connection.ops.quote_name, sorted(tables - _KEPT_TABLES))
        # In one transaction, at whose end references are checked.
        connection.ops.execute_sql_flush(
            [f"DELETE FROM {table}" for table in quoted]  # noqa: S608
        )


@pytest.fixture(scope="session", autouse=True)
def _passwords_are_hashed_at_once() -> Iterator[None]:
    """The site's own hash takes half a second on purpose."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    """No test is throttled for what others did."""
    cache.clear()


@pytest.fixture
def time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was heard of in a test stays fresh in it, however slow the machine."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Celery's queue, kept in memory."""
    monkeypatch.setattr(app.conf, "broker_url", "memory://")
    with app.connection_for_write() as connection:
        queue = connection.SimpleQueue("celery")
        queue.clear()
        yield queue
        queue.close()


@pytest.fixture
def tiny_problem() -> dict[str, Any]:
    """A `helixweb.problem/1` document of three nodes and four layers, free to be changed."""
    return copy.deepcopy(TINY_PROBLEM)


@pytest.fixture
def measured_problem(tiny_problem: dict[str, Any]) -> dict[str, Any]:
    """The same with measured layer times, batch limits, and prices; one node has its own."""
    for number, profile in enumerate(tiny_problem["compute_profiles"].values(), start=1):
        profile["layer_times"] = {
            "prompt": [[1.0, 1e-4 * number], [64.0, 1e-3 * number]],
            "decode": [[1.0, 2e-4 * number], [8.0, 3e-4 * number]],
        }
        profile["price_per_hour"] = 2.5 / number
    tiny_problem["compute_profiles"]["big"]["batch_limits"] = {
        "prompt_max_requests": [8, 4, 2],
        "decode_max_tokens": [64, 32, 16],
    }
    tiny_problem["nodes"][0]["price_per_hour"] = 1.75
    return tiny_problem


@pytest.fixture
def user(db: None) -> Any:
    """Ada, who may do everything but say who may do what."""

    def make() -> Any:
        ada = get_user_model().objects.create_user("ada")
        Grant.objects.create(user=ada, role=Role.OPERATOR)
        return ada

    return recorded(make)


@pytest.fixture
def cluster(user: Any, tiny_problem: dict[str, Any]) -> Cluster:
    """The tiny problem, imported."""
    return recorded(lambda: import_problem(problem_from_dict(tiny_problem)))


@pytest.fixture
def joined(cluster: Cluster, user: Any) -> FakeCluster:
    """The same, joined by doubles of its nodes and coordinator, with a plan."""
    return recorded(lambda: FakeCluster(cluster, user))


@pytest.fixture
def browser(user: Any) -> Client:
    """Ada's browser, logged in."""
    return browser_of(user)


@pytest.fixture
def api(user: Any) -> APIClient:
    """Ada's REST client."""
    return api_of(user)


@pytest.fixture
def shell(user: Any, tmp_path: Path) -> Shell:
    """Ada's commands, with a key of hers."""
    return Shell(new_key(user), home=str(tmp_path))


@pytest.fixture
def reader(cluster: Cluster) -> Reader:
    """Vera, who sees this cluster and no other."""
    return Reader("vera", cluster, get_user_model().objects)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup without a passphrase: `write` of test_backup_file.py."""
    from tests.helixweb.test_backup_file import write

    write(tmp_path / "site.helix", seal=None)
    return tmp_path / "site.helix"


@pytest.fixture
def measured(cluster: Cluster, user: Any) -> Any:
    """The same cluster, whose agents are asked to measure: `Measured` of test_profiling.py."""
    from tests.helixweb.test_profiling import Measured

    return recorded(lambda: Measured(cluster, user))


@pytest.fixture
def site(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same cluster and a clock that tests turn: `Site` of test_alerts.py."""
    from tests.helixweb.test_alerts import Site

    return Site(cluster, monkeypatch)


@pytest.fixture
def two(cluster: Cluster, user: Any) -> Instances:
    """The same, in which two nodes hold the whole model and serve it alone."""
    return recorded(lambda: Instances(cluster, user, whole=2, method="instances"))


@pytest.fixture
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repairs of three nodes need no more."""
    monkeypatch.setattr(repairing, "SEARCH_S", 0.3)


@pytest.fixture
def plan(cluster: Cluster, user: Any) -> Plan:
    """A plan for the flow, found by the baselines at once; its first simulation is queued."""
    return recorded(
        lambda: searched(begun(cluster, user, PlanOptions(objective="flow", time_limit_s=1)))
    )

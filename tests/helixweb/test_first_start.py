"""What `up` prepares: who may come in, whose coordinator it is, and which databases it refuses."""

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from helixweb.common.auth import sha256_hex
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster, Coordinator, JoinToken
from helixweb.operations import first_start, migrating
from helixweb.operations.backup import tables
from helixweb.operations.backup.archive import ArchiveReader, table_member
from helixweb.operations.backup.saving import save
from helixweb.operations.schema_version import NewerDatabase


@pytest.mark.django_db
def test_a_link_lets_the_first_person_in_and_none_is_printed_after_that() -> None:
    link = first_start.login_link("")
    assert Client().post(link).status_code == 302
    user = get_user_model().objects.get()
    assert (user.username, user.is_superuser) == (first_start.FIRST_USER, True)
    assert first_start.login_link("") == ""
    assert get_user_model().objects.count() == 1
    assert first_start.login_link("ada").startswith("/login/link/")
    assert get_user_model().objects.filter(username="ada").exists()


@pytest.mark.django_db
def test_the_coordinator_joins_the_first_cluster_and_makes_one_if_there_is_none() -> None:
    made = first_start.coordinator_token("")
    assert made["cluster"] == first_start.FIRST_CLUSTER
    Cluster.objects.create(name="other")
    assert first_start.coordinator_token("")["cluster"] == first_start.FIRST_CLUSTER
    assert first_start.coordinator_token("other")["cluster"] == "other"
    assert first_start.coordinator_token("", former="other")["cluster"] == "other"
    gone = first_start.coordinator_token("", former="gone")
    assert gone["cluster"] == first_start.FIRST_CLUSTER
    assert set(JoinToken.unscoped.values_list("role", flat=True)) == {"coordinator"}
    assert Cluster.unscoped.count() == 2
    assert not first_start.is_joined("")
    assert not first_start.is_joined("hlxn_x")
    row = Coordinator(cluster=Cluster.unscoped.get(name="other"), name="c", uuid=uuid4())
    row.credential_hash = sha256_hex("hlxn_x")
    row.save()
    assert first_start.is_joined("hlxn_x")


@pytest.mark.django_db
def test_a_database_of_a_newer_version_is_refused_untouched() -> None:
    applied = MigrationRecorder(connection).record_applied
    applied("wiki", "0001_initial")  # of another program that shares the database
    assert migrating.pending() == 0
    applied("inventory", "0999_from_the_future")
    with pytest.raises(NewerDatabase, match=r"newer HelixWeb: inventory\.0999_from_the_future"):
        migrating.pending()


def test_old_backups_are_forgotten_and_others_files_are_not(tmp_path: Path) -> None:
    for day in range(4):
        path = tmp_path / f"before-upgrade-{day}.helix"
        path.touch()
        moment = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)).timestamp()
        os.utime(path, (moment, moment))
    (tmp_path / "mine.helix").touch()
    removed = migrating.forget_old(tmp_path, pattern="before-*.helix", keep=2)
    assert [path.name for path in removed] == [f"before-upgrade-{day}.helix" for day in (0, 1)]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.django_db(transaction=True)
def test_a_backup_is_of_one_moment_while_others_write_without_waiting(tmp_path: Path) -> None:
    """A writer comes between the first table and the last, as it will on a site that runs."""
    Event.objects.create(topic="before", type="x")
    wrote: list[str] = []

    def write(said: str) -> None:
        if wrote:
            return
        wrote.append(said)

        def other() -> None:
            Event.objects.create(topic="meanwhile", type="x")
            connection.close()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()

    save(to=tmp_path / "a.helix", data_dir=tmp_path, say=write)
    assert Event.objects.count() == 2
    with ArchiveReader.open(tmp_path / "a.helix") as archive:
        rows = [json.loads(line) for line in archive.lines(table_member("common.event"))]
        assert len(rows) == 1
        assert next(t for t in archive.manifest.tables if t.label == "common.event").rows == 1


@pytest.mark.django_db(transaction=True)
def test_values_of_every_kind_come_back_as_they_were(user: Any) -> None:
    odd = {
        "text": "déjà 日本 \u2028 \"'\\", "none": None, "small": 5e-324, "large": 2**70,
        "list": [1, [2.0]],
    }  # fmt: skip
    event = Event.objects.create(topic="t" * 80, type="", data=odd)
    Event.objects.filter(pk=event.pk).update(
        created_at=datetime(1999, 12, 31, 23, 59, 59, 999999, UTC)
    )
    (line,) = list(tables.rows_of(Event))
    names = [field.attname for field in tables.columns_of(Event)]
    before = Event.objects.values().get()
    Event.objects.all().delete()
    assert tables.load_rows(Event, names, iter([line])) == 1
    assert Event.objects.values().get() == before

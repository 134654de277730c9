"""Save a site: every table as of one moment, and the files it cannot do without."""

import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection, models
from django.db.migrations.loader import MigrationLoader

from helixweb.operations.backup import tables
from helixweb.operations.backup.archive import (
    FORMAT,
    ArchiveWriter,
    KeptFile,
    Manifest,
    Table,
    file_member,
    table_member,
)
from helixweb.operations.backup.folder import kept_files
from helixweb.operations.backup.sealing import Seal
from helixweb.operations.schema_version import check_known
from helixweb.versions import product_version


def save(
    *,
    to: Path,
    data_dir: Path | None = None,
    passphrase: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Manifest:
    """Write the backup while the site runs. Raises OSError, DatabaseError, NewerDatabase."""
    seal = Seal.fresh(passphrase) if passphrase else None
    folder = data_dir or settings.DATA_DIR
    to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ArchiveWriter.open(to, seal=seal) as writer, tables.one_moment():
        loader = MigrationLoader(connection)
        check_known(loader)
        migrations = tables.applied_by_app(loader)
        manifest = Manifest(
            format=FORMAT,
            version=product_version(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            database=connection.vendor,
            migrations=migrations,
            tables=[_table(writer, model, say) for model in tables.models_of(loader, migrations)],
            files=[_file(writer, path, within=folder) for path in kept_files(folder)],
            salt=seal.salt.hex() if seal else None,
        )
        writer.finish(manifest)
    return manifest


def _table(writer: ArchiveWriter, model: type[models.Model], say: Callable[[str], None]) -> Table:
    label = model._meta.label_lower
    sha256, rows = writer.add(table_member(label), tables.rows_of(model))
    say(f"{label}: {rows} rows")
    return Table(
        label=label,
        columns=[field.attname for field in tables.columns_of(model)],
        rows=rows,
        sha256=sha256,
        last_id=tables.last_id(model),
    )


def _file(writer: ArchiveWriter, path: Path, *, within: Path) -> KeptFile:
    name = path.relative_to(within).as_posix()
    sha256, _ = writer.add(file_member(name), [path.read_bytes()])
    return KeptFile(path=name, sha256=sha256, mode=stat.S_IMODE(path.stat().st_mode))

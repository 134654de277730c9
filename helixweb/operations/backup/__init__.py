"""Backups: one file with every table, the secrets of the data folder and a manifest, of the same
form on SQLite and PostgreSQL. Only operations come here.

`saving` and `restoring` are the use cases; `archive` is the file, `tables` and `folder` what goes
into it, `sealing` its encryption, `stores` where files of it are kept.
"""

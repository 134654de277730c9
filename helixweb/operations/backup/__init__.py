"""Backups: one file with every table, the secrets of the data folder and a manifest, in the same
format for SQLite and PostgreSQL. Only operations import this.

`saving` and `restoring` are the use cases; `archive` is the file, `tables` and `folder` its
content, `sealing` its encryption, `stores` the places where files are stored.
"""

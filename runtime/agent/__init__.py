"""The agent: joins a cluster, keeps one stage process as helixweb wants it; torch-free.

`python -m runtime agent` runs it.
"""

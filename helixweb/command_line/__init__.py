"""The command `helixweb`: what the browser can do, from a shell, over the REST API.

Each subcommand is one module with `add_parser` and `run`, named in `registry.py`. It knows
`helixweb.client` and no Django; `up`, `doctor`, `backup` and `restore` run on the server.
"""

"""Subcommands of `helixweb` that run on the server; the registry of the command line names them."""

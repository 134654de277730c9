"""A typed client of the REST API, for scripts and for the command line. Needs httpx, no Django."""

"""`python -m helixweb.demo`: the whole product on this machine, through its own REST API.

Starts every process as a user would and talks to them only over HTTP; nothing imports it.
"""

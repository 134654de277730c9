"""What the exit status says; scripts may rely on these."""

OK = 0
FAILED = 1  # the server or the command failed, or what was waited for ended badly
USAGE = 2  # wrong options or a value that is refused as malformed (HTTP 400, 413, 415, 422)
NOT_FOUND = 3  # nothing has that name or id (404)
REFUSED = 4  # no key, a wrong one, or one that may not do this (401, 403, 429)
CONFLICT = 5  # the state of the row forbids it, or somebody changed it meanwhile (409, 412)
UNREACHABLE = 6  # no answer from the server
DIFFERS = 7  # `import --check`: the file says something else than the site
INTERRUPTED = 130  # Ctrl-C

MEANINGS = {
    OK: "done",
    FAILED: "failed",
    USAGE: "wrong options or a malformed value",
    NOT_FOUND: "nothing has that name",
    REFUSED: "no key, a wrong one, or not allowed",
    CONFLICT: "the state forbids it, or somebody changed it meanwhile",
    UNREACHABLE: "no answer from the server",
    DIFFERS: "import --check: the file differs from the site",
    INTERRUPTED: "Ctrl-C",
}

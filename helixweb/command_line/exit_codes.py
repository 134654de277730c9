"""Exit codes; scripts may rely on them."""

MEANINGS = {
    (OK := 0): "done",
    (FAILED := 1): "failed",  # the server or the command, or what was waited for
    (USAGE := 2): "wrong options or a malformed value",  # HTTP 400, 413, 415, 422
    (NOT_FOUND := 3): "nothing has that name",  # 404
    (REFUSED := 4): "no key, a wrong one, or not allowed",  # 401, 403, 429
    (CONFLICT := 5): "the state forbids it, or another user changed it meanwhile",  # 409, 412
    (UNREACHABLE := 6): "no answer from the server",
    (DIFFERS := 7): "import --check: the file differs from the site",
    (INTERRUPTED := 130): "Ctrl-C",
}

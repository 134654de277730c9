"""Errors as exit codes, and as messages that name value and remedy."""

from helixweb import client
from helixweb.command_line import exit_codes
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.output import json_line, printable
from helixweb.command_line.surroundings import Surroundings

# UnicodeEncodeError: bytes that are no text, of which Python makes half characters.
ERRORS = (client.ClientError, CommandFailed, OSError, UnicodeEncodeError)
_CODES: tuple[tuple[int, tuple[type[Exception], ...]], ...] = (
    (exit_codes.USAGE, (client.BadAddress, client.Malformed, UnicodeEncodeError)),
    (exit_codes.NOT_FOUND, (client.NotFound,)),
    (
        exit_codes.REFUSED,
        (client.NotAuthenticated, client.NotAllowed, client.TooManyRequests),
    ),
    (exit_codes.CONFLICT, (client.Conflict,)),
    (exit_codes.UNREACHABLE, (client.Unreachable, client.NotTheApi)),
)
_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (client.NotAuthenticated, "make a key under Settings > API keys and run `helixweb login`"),
    (client.Unreachable, "--url or HELIXWEB_URL says where the site is"),
)
MOST_SHOWN = 20


def exit_code_of(error: Exception) -> int:
    if isinstance(error, CommandFailed):
        return error.exit_code
    return next((code for code, kinds in _CODES if isinstance(error, kinds)), exit_codes.FAILED)


def report(error: Exception, around: Surroundings, *, as_json: bool) -> int:
    """Write an error to stderr, with --json as problem document; returns the exit code."""
    code = exit_code_of(error)
    if not as_json:
        for line in lines(error):
            around.warn(printable(line))
        return code
    shown = error.document if isinstance(error, client.Problem) else {"title": type(error).__name__}
    shown = {**shown, "detail": str(error), "exit_code": code}
    around.err.write(f"{json_line({'error': shown})}\n")
    return code


def lines(error: Exception) -> list[str]:
    """Lines about an error: what failed, one line for every field at fault, and the remedy."""
    if isinstance(error, OSError) and error.strerror:
        return [f"{error.filename}: {error.strerror}" if error.filename else error.strerror]
    if isinstance(error, UnicodeEncodeError):
        place = error.object[max(0, error.start - 20) : error.end + 20]
        return [f"{place!r} has bytes that are no text in UTF-8; write it in UTF-8"]
    found = [str(error) or type(error).__name__]
    if isinstance(error, client.Problem) and (count := len(error.errors)) > 1:
        found = [f"{error.title}: {count} values are refused"]
        found += [f"  {one.field or '(all)'}: {one.message}" for one in error.errors[:MOST_SHOWN]]
        if count > MOST_SHOWN:
            found.append(f"  … and {count - MOST_SHOWN} more; --json shows all")
    if isinstance(error, client.TooManyRequests) and error.retry_after_s is not None:
        found.append(f"come again in {error.retry_after_s:.0f} s")
    return found + [remedy for kind, remedy in _REMEDIES if isinstance(error, kind)]

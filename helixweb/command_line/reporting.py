"""What went wrong, as an exit code and as words that name value and remedy."""

from helixweb.client import (
    BadAddress,
    ClientError,
    Conflict,
    Malformed,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotTheApi,
    Problem,
    TooManyRequests,
    Unreachable,
)
from helixweb.command_line import exit_codes
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.output import json_line, printable
from helixweb.command_line.surroundings import Surroundings

# UnicodeEncodeError: of bytes that Python takes along as half a character, and nobody can send.
ERRORS = (ClientError, CommandFailed, OSError, UnicodeEncodeError)
_CODES: tuple[tuple[int, tuple[type[Exception], ...]], ...] = (
    (exit_codes.USAGE, (BadAddress, Malformed, UnicodeEncodeError)),
    (exit_codes.NOT_FOUND, (NotFound,)),
    (exit_codes.REFUSED, (NotAuthenticated, NotAllowed, TooManyRequests)),
    (exit_codes.CONFLICT, (Conflict,)),
    (exit_codes.UNREACHABLE, (Unreachable, NotTheApi)),
)
_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (NotAuthenticated, "make a key under Settings > API keys and run `helixweb login`"),
    (Unreachable, "--url or HELIXWEB_URL says where the site is"),
)
MOST_SHOWN = 20


def exit_code_of(error: Exception) -> int:
    if isinstance(error, CommandFailed):
        return error.exit_code
    return next((code for code, kinds in _CODES if isinstance(error, kinds)), exit_codes.FAILED)


def report(error: Exception, around: Surroundings, *, as_json: bool) -> int:
    """Write it to stderr, for a script the server's problem document; returns the exit code."""
    code = exit_code_of(error)
    if not as_json:
        for line in lines(error):
            around.warn(printable(line))
        return code
    told = error.document if isinstance(error, Problem) else {"title": type(error).__name__}
    told = {**told, "detail": str(error), "exit_code": code}
    around.err.write(f"{json_line({'error': told})}\n")
    return code


def lines(error: Exception) -> list[str]:
    """The first says what; then one for every field at fault, and the remedy."""
    if isinstance(error, OSError) and error.strerror:
        return [f"{error.filename}: {error.strerror}" if error.filename else error.strerror]
    if isinstance(error, UnicodeEncodeError):
        place = error.object[max(0, error.start - 20) : error.end + 20]
        return [f"{place!r} has bytes that are no text in UTF-8; write it in UTF-8"]
    if not isinstance(error, Problem):
        told = [str(error) or type(error).__name__]
    elif len(error.errors) > 1:
        told = [f"{error.title}: {len(error.errors)} values are refused"]
        told += [f"  {one.field or '(all)'}: {one.message}" for one in error.errors[:MOST_SHOWN]]
        if len(error.errors) > MOST_SHOWN:
            told.append(f"  … and {len(error.errors) - MOST_SHOWN} more; --json tells all")
    else:
        told = [str(error)]
    if isinstance(error, TooManyRequests) and error.retry_after_s is not None:
        told.append(f"come again in {error.retry_after_s:.0f} s")
    told += [remedy for kind, remedy in _REMEDIES if isinstance(error, kind)]
    return told

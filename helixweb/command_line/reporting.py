"""What went wrong, as an exit code and as words that name value and remedy."""

from typing import Any

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
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (BadAddress, exit_codes.USAGE),
    (Malformed, exit_codes.USAGE),
    (NotFound, exit_codes.NOT_FOUND),
    (NotAuthenticated, exit_codes.REFUSED),
    (NotAllowed, exit_codes.REFUSED),
    (TooManyRequests, exit_codes.REFUSED),
    (Conflict, exit_codes.CONFLICT),
    (Unreachable, exit_codes.UNREACHABLE),
    (NotTheApi, exit_codes.UNREACHABLE),
    (UnicodeEncodeError, exit_codes.USAGE),
)
_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (NotAuthenticated, "make a key under Settings > API keys and run `helixweb login`"),
    (Unreachable, "--url or HELIXWEB_URL says where the site is"),
)
MOST_SHOWN = 20


def exit_code_of(error: Exception) -> int:
    if isinstance(error, CommandFailed):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), exit_codes.FAILED)


def report(error: Exception, around: Surroundings, *, as_json: bool) -> int:
    """Says it on stderr; returns the exit code."""
    code = exit_code_of(error)
    if as_json:
        around.err.write(f"{json_line({'error': document(error, code)})}\n")
        return code
    for line in lines(error):
        around.warn(printable(line))
    return code


def document(error: Exception, code: int) -> dict[str, Any]:
    """The server's problem document where there is one; always `detail` and `exit_code`."""
    told = error.document if isinstance(error, Problem) else {"title": type(error).__name__}
    return {**told, "detail": str(error), "exit_code": code}


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

"""Failures of commands, each with its exit code. Imports nothing, so that all may use it."""

from helixweb.command_line import exit_codes


class CommandFailed(Exception):
    """The command failed; the text says why and what to do."""

    exit_code = exit_codes.FAILED


class BadUsage(CommandFailed):
    """A word of the command, or a setting, is invalid."""

    exit_code = exit_codes.USAGE


class NoSuchName(CommandFailed):
    """No row of the site has that name."""

    exit_code = exit_codes.NOT_FOUND

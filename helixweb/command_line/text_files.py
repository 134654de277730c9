"""Files that people wrote for a command."""

from pathlib import Path

from helixweb.command_line.failures import BadUsage


def text_of(path: Path) -> str:
    """Text of a UTF-8 file with or without BOM. Raises OSError, BadUsage."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadUsage(f"{path}, line {line}: this is no text in UTF-8; save it as such") from error

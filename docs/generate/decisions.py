"""The list of decisions, by their files."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "decisions"

HEAD = """# Decisions

What will be asked about again, half a page each: what was decided, why, what was rejected, and what
the decision does not do.

```{toctree}
:maxdepth: 1

"""


def page() -> str:
    """A table of contents of `docs/decisions`, in order of number."""
    names = sorted(path.stem for path in FOLDER.glob("[0-9]*.md"))
    return HEAD + "".join(f"/decisions/{name}\n" for name in names) + "```\n"

"""The Markdown of the documentation, as tests read it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_MARK = re.compile(r"^\s*<!-- (run|parse|not run)(?:: (.+?))? -->$")
_FENCE = re.compile(r"^(\s*)(`{3,})([^`\s]*).*$")


def pages() -> list[Path]:
    """Every page that a person wrote, the README first, and those of `packaging` last."""
    made = DOCS / "generated", DOCS / "_build"
    written = (path for path in DOCS.rglob("*.md") if not set(made) & set(path.parents))
    packaged = (ROOT / "packaging").rglob("README.md")
    return [ROOT / "README.md", *sorted(written), *sorted(packaged)]


def inline_commands(page: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each inline code span and indented line outside fences."""
    text = re.sub(r"^( *)```.*?^ *```", _blank, page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for span in re.finditer(r"`([^`]+)`", text):
        yield text[: span.start()].count("\n") + 1, " ".join(span[1].split())
    joined = re.sub(r"\\\n\s*", "", text)
    for line in re.finditer(r"^ {4,}(?:\$ )?(\S.*)$", joined, flags=re.MULTILINE):
        yield joined[: line.start()].count("\n") + 1, line[1].strip()


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fence of what a shell shows. `mark` is "run", "parse" or "not run", with what follows it
    as `note`; None where nobody marked it."""

    page: Path
    line: int
    mark: str | None
    note: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Each `$ …` with its continued lines as one, without what is said behind a #."""
        found: list[str] = []
        prompt = "$ " if re.search(r"^\$ ", self.text, re.MULTILINE) else "# "  # of root
        until = ""  # the word that ends a text for the last command
        for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
            if until:
                found[-1] += f"\n{line}"
                until = "" if line == until else until
            elif line.startswith(prompt):
                found.append(re.sub(r"\s+# .*$", "", line[2:]).strip())
                here = re.search(r"<<-?\s*['\"]?(\w+)['\"]?", line)
                until = here[1] if here else ""
        return found

    @property
    def expected(self) -> list[str]:
        """Patterns of the lines that are no commands: what must be among what is said."""
        text = re.sub(r"\\\n\s*", "", self.text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return [
            r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in line.split())
            for line in lines
            if not line.startswith("$ ") and line != "…"
        ]


def blocks(page: Path, language: str = "console") -> Iterator[Block]:
    """The fences of that language, in their order."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            number += 1
            continue
        end = next(
            at for at in range(number + 1, len(lines)) if lines[at].strip().startswith(opening[2])
        )
        if opening[3] == language:
            mark = _MARK.match(lines[number - 1]) if number else None
            yield Block(
                page=page,
                line=number + 1,
                mark=mark[1] if mark else None,
                note=(mark[2] or "") if mark else "",
                text=dedent("\n".join(lines[number + 1 : end])),
            )
        number = end + 1

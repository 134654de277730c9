"""`python -m docs.figures`: write all drawings, or check with --check that none has changed."""

import argparse
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_DRAWINGS = {"__init__", "__main__", "example"}


def names() -> list[str]:
    """Of the modules that draw."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_DRAWINGS)


def drawn(name: str) -> str:
    """The SVG that the module makes now."""
    text: str = importlib.import_module(f"docs.figures.{name}").draw()
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.figures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if one differs")
    check = parser.parse_args().check
    differing = []
    for name in names():
        path, text = HERE / f"{name}.svg", drawn(name)
        if check and (not path.exists() or path.read_text() != text):
            differing.append(path.name)
        elif not check:
            path.write_text(text)
    print("\n".join(differing) or f"{len(names())} drawings")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

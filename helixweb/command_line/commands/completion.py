"""`helixweb completion SHELL`: what completes lines, names of the site included."""

import argparse

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import COMMANDS, Subparsers
from helixweb.command_line.surroundings import Surroundings

_HOW = """put it where the shell reads it at its start:
  bash   eval "$(helixweb completion bash)"    in ~/.bashrc
  zsh    eval "$(helixweb completion zsh)"     in ~/.zshrc
  fish   helixweb completion fish | source     in ~/.config/fish/config.fish"""

# zsh has `compdef` only where its completion was begun, which a bare ~/.zshrc does not. After the
# first line, by which zsh knows a file of its own.
_BEGIN_ZSH = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"


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
    code = shellcode(["helixweb"], shell=arguments.shell)
    if arguments.shell == "zsh":
        first, _, rest = code.partition("\n")
        code = f"{first}\n{_BEGIN_ZSH}{rest}"
    around.say(code)
    return exit_codes.OK

"""`helixweb demo`, which `make demo` runs; `helixweb completion`, which completes lines."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any, Literal

from helixweb.command_line.command import command
from helixweb.command_line.surroundings import Surroundings

_HOW = """put it where the shell reads it at its start:
  bash   eval "$(helixweb completion bash)"    in ~/.bashrc
  zsh    eval "$(helixweb completion zsh)"     in ~/.zshrc
  fish   helixweb completion fish | source     in ~/.config/fish/config.fish"""

# zsh has `compdef` only where its completion was begun, which a bare ~/.zshrc does not. After the
# first line, by which zsh knows a file of its own.
_BEGIN_ZSH = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"


def _demo_options(parser: ArgumentParser) -> None:
    from helixweb.demo.__main__ import add_options

    add_options(parser)


@command(_demo_options, connects=False)
def demo(around: Surroundings, **options: Any) -> int:
    from helixweb.demo.__main__ import run

    return run(Namespace(**options))


@command(connects=False, epilog=_HOW, formatter_class=RawDescriptionHelpFormatter)
def completion(around: Surroundings, shell: Literal["bash", "zsh", "fish"]) -> None:
    from argcomplete.shell_integration import shellcode

    code = shellcode(["helixweb"], shell=shell)
    if shell == "zsh":
        first, _, rest = code.partition("\n")
        code = f"{first}\n{_BEGIN_ZSH}{rest}"
    around.say(code)

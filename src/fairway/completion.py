"""Scripts that complete the command line in a shell, made from the parser itself: they cannot fall behind it."""

from __future__ import annotations

import argparse
from typing import Literal


def script(shell: Literal["bash", "zsh", "fish"], parser: argparse.ArgumentParser) -> str:
    """What the shell is to read: `source <(fairway completion bash)`, or `fairway completion fish | source`.

    >>> parser = argparse.ArgumentParser(prog="fairway")
    >>> show = parser.add_subparsers().add_parser("show", help="show a study")
    >>> print(script("fish", parser), end="")
    complete -c fairway -n __fish_use_subcommand -f -a show -d 'show a study'
    complete -c fairway -n '__fish_seen_subcommand_from show' -s h -l help
    """
    commands = _commands(parser)
    if shell == "fish":
        return "".join(f"{line}\n" for name, (text, made) in commands.items() for line in _fish(name, text, made))
    cases = "\n".join(f"    {name}) words='{' '.join(_options(made))}' ;;" for name, (_, made) in commands.items())
    bash = _BASH.format(commands=" ".join(commands), cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash}" if shell == "zsh" else bash


_BASH = """_fairway() {{
  local words word="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then words='{commands}'; else case "${{COMP_WORDS[1]}}" in
{cases}
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _fairway fairway
"""


def _commands(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Each command's help and parser."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    texts = {action.dest: action.help or "" for action in subparsers._choices_actions}
    return {name: (texts.get(name, ""), made) for name, made in subparsers.choices.items()}


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The words that may follow a command: its options, and operands with a fixed choice."""
    found: list[str] = []
    for action in parser._actions:
        found += action.option_strings or [str(choice) for choice in action.choices or ()]
    return found


def _fish(name: str, text: str, parser: argparse.ArgumentParser) -> list[str]:
    lines = [
        f"complete -c fairway -n __fish_use_subcommand -f -a {name} -d '{text.replace(chr(39), chr(92) + chr(39))}'"
    ]
    for action in parser._actions:
        long = [f"-l {option[2:]}" for option in action.option_strings if option.startswith("--")]
        short = [f"-s {option[1:]}" for option in action.option_strings if not option.startswith("--")]
        choices = ["-a", f"'{' '.join(map(str, action.choices))}'"] if action.choices else []
        if long or short or choices:
            lines.append(
                " ".join([f"complete -c fairway -n '__fish_seen_subcommand_from {name}'", *short, *long, *choices])
            )
    return lines

"""Scripts that complete the command line in a shell, generated from the parser so that they always match it."""

from __future__ import annotations

import argparse
from typing import Literal


def script(shell: Literal["bash", "zsh", "fish"], parser: argparse.ArgumentParser) -> str:
    """The script for a shell to read: `source <(fairway completion bash)`, or `fairway completion fish | source`.

    >>> parser = argparse.ArgumentParser(prog="fairway")
    >>> show = parser.add_subparsers().add_parser("show", description="show a study")
    >>> print(script("fish", parser), end="")
    complete -c fairway -n __fish_use_subcommand -f -a show -d 'show a study'
    complete -c fairway -n '__fish_seen_subcommand_from show' -s h -l help
    """
    there = commands(parser)
    if shell == "fish":
        return "".join(f"{line}\n" for name, command in there.items() for line in _fish(name, command))
    cases = "\n".join(f"    {name}) words='{' '.join(_options(command))}' ;;" for name, command in there.items())
    bash = _BASH.format(commands=" ".join(there), cases=cases)
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


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by its name."""
    (found,) = (action.choices for action in _actions(parser) if isinstance(action.choices, dict))
    return found


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options and operands of a parser, which argparse gives no public access to."""
    actions: list[argparse.Action] = vars(parser)["_actions"]
    return actions


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The words that may follow a command: its options, and the choices of its operands."""
    found: list[str] = []
    for action in _actions(parser):
        found += action.option_strings or [str(choice) for choice in action.choices or ()]
    return found


def _fish(name: str, parser: argparse.ArgumentParser) -> list[str]:
    text = (parser.description or "").replace("'", r"\'")
    lines = [f"complete -c fairway -n __fish_use_subcommand -f -a {name} -d '{text}'"]
    for action in _actions(parser):
        long = [f"-l {option[2:]}" for option in action.option_strings if option.startswith("--")]
        short = [f"-s {option[1:]}" for option in action.option_strings if not option.startswith("--")]
        choices = ["-a", f"'{' '.join(map(str, action.choices))}'"] if action.choices else []
        if long or short or choices:
            lines.append(
                " ".join([f"complete -c fairway -n '__fish_seen_subcommand_from {name}'", *short, *long, *choices])
            )
    return lines

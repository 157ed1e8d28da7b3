"""What the site shows beyond docs/: measured results, examples, and the commands' own help. None of it is copied.

Links that work in the repository (../bench/results/scale.md, ../examples/fair_credit.py) are turned into links to the
pages made here. Examples in docstrings are doctests without a fence; `Doctests` gives them one.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Docstring, Extension
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
RESULTS, EXAMPLES = ROOT / "bench" / "results", ROOT / "examples"
TITLES = {"ray": "On a live Ray", "speed": "Speed", "staleness": "How late news may arrive"}  # of results without one
COMMANDS = "<!-- commands -->"
DIRECTIVE = re.compile(r"<!-- (::: .*?)-->\n.*?<!-- end -->\n", re.DOTALL)  # and what is read in the repository instead


def on_config(config: Any) -> Any:
    """List results and examples in the navigation."""
    config.nav += [
        {"Benchmarks": ["benchmarks/index.md", *(f"benchmarks/{file.stem}.md" for file in _results())]},
        {"Examples": ["examples/index.md", *sorted(f"examples/{file.stem}.md" for file in EXAMPLES.glob("*.py"))]},
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each result and each example, and the results' pictures."""
    made = {"benchmarks/index.md": _benchmarks(), "examples/index.md": _examples()}
    made |= {f"benchmarks/{file.stem}.md": _result(file) for file in _results()}
    made |= {f"examples/{file.stem}.md": _example(file) for file in EXAMPLES.glob("*.py")}
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    for picture, _ in _pictures():
        files.append(File.generated(config, f"benchmarks/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn links into the repository into links to the pages made of it; put in what code and commands say."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        kind = "benchmarks" if found["folder"] == "bench/results" else "examples"
        place = f"{kind}/{found['name']}.md"
        return f"]({posixpath.relpath(place, folder or '.')})"

    markdown = re.sub(DIRECTIVE, r"\1", markdown)
    markdown = re.sub(r"\]\((?:\.\./)+(?P<folder>bench/results|examples)/(?P<name>\w+)\.\w+\)", link, markdown)
    return markdown.replace(COMMANDS, "\n".join(_commands())) if COMMANDS in markdown else markdown


class Doctests(Extension):
    """Examples in docstrings as code."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Fence the doctests of one docstring."""
        if obj.docstring:
            obj.docstring = Docstring(_fenced(obj.docstring.value), parent=obj)


def _fenced(text: str) -> str:
    """Markdown with each run of doctest lines, up to an empty line, in a fence."""
    return re.sub(r"^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", text, flags=re.MULTILINE)


def _results() -> list[Path]:
    """The results by name, one of each; the README is their index in the repository."""
    found = {file.stem: file for kind in ("txt", "md") for file in RESULTS.glob(f"*.{kind}")}
    return sorted(file for name, file in found.items() if name != "README")


def _pictures() -> Iterator[tuple[Path, str]]:
    """Each picture, with the result that it belongs to: the longest name that its own begins with."""
    for picture in sorted(file for kind in ("png", "svg") for file in RESULTS.glob(f"*.{kind}")):
        yield (
            picture,
            max((file.stem for file in _results() if picture.stem.startswith(file.stem)), key=len, default=""),
        )


def _result(file: Path) -> str:
    """A result as a page: Markdown as it is, text in a fence, its pictures at the top."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".txt":
        text = f"# {_title(file)}\n\n```text\n{text}```\n"
    title, _, rest = text.partition("\n")
    own = [picture for picture, name in _pictures() if name == file.stem and picture.name not in text]
    pictures = "".join(f"\n![{title.lstrip('# ')}]({picture.name})\n" for picture in own)
    return f"{title}\n{pictures}{rest}"


def _title(file: Path) -> str:
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ") if file.suffix == ".md" else TITLES.get(file.stem, file.stem)


def _benchmarks() -> str:
    lines = [
        "# Benchmarks",
        "",
        "Measured results, as the commands wrote them; each page names its command. `make bench` measures speed,",
        "`make papers` repeats the papers' experiments, `make tables` compares tuners on public tables.",
        "",
    ]
    return "\n".join(lines + [f"- [{_title(file)}]({file.stem}.md)" for file in _results()]) + "\n"


def _example(file: Path) -> str:
    code = file.read_text(encoding="utf-8")
    return f"# {_named(file)}\n\n`python examples/{file.name}`\n\n```python\n{code}```\n"


def _examples() -> str:
    lines = ["# Examples", "", "Each is one file of `examples/` and takes under a minute on two cores.", ""]
    for file in sorted(EXAMPLES.glob("*.py")):
        about = re.match(r'"""(.*?)(?:\n\n|""")', file.read_text(encoding="utf-8"), re.DOTALL)
        lines.append(f"- [{_named(file)}]({file.stem}.md): {' '.join(about[1].split()) if about else ''}")
    return "\n".join(lines) + "\n"


def _named(file: Path) -> str:
    return file.stem.replace("_", " ").capitalize()


def _commands() -> Iterator[str]:
    """The help of each command, 80 columns wide."""
    from fairway.cli import parser  # noqa: PLC0415 - where fairway is installed
    from fairway.completion import commands  # noqa: PLC0415

    os.environ["COLUMNS"] = "80"
    for name, command in commands(parser()).items():
        yield f"## fairway {name}\n\n```text\n{command.format_help()}```\n"

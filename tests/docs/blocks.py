"""Code blocks of a Markdown page, in the order of the page, with what is to be done with each.

Directives are HTML comments, which the site does not show:

`<!-- skip: needs the data folder -->` before a block: it is not run, and that is the reason.
`<!-- hidden: ... -->`: Python that is run at this place, such as what makes a table that the page assumes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PYTHON = {"python", "py"}
SHELL = {"bash", "console", "sh", "shell"}
NO_CODE = {"", "bibtex", "csv", "dockerfile", "html", "ini", "json", "make", "markdown", "math", "text", "toml", "yaml"}
COMMAND = "density-regression"
OTHERS = {
    "cd",
    "cp",
    "curl",
    "docker",
    "export",
    "git",
    "make",
    "mkdir",
    "mlflow",
    "npm",
    "pip",
    "pytest",
    "python",
    "ray",
    "torchrun",
}
"""Programs by which a block without a language is recognised as commands."""

_CONTAINER = re.compile(r'(!!!|\?\?\?\+?|===[!+]?) ["\w]')
_FENCE = re.compile(r"\s*(```|~~~)")
_DIRECTIVE = re.compile(r"<!--+ (skip|hidden):\s*(.*?)\s*--+>\s*", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A line of a shell block: its words, what the page says it prints, and why it is not run, if it is not."""

    words: tuple[str, ...]
    printed: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Block:
    """A block at a line of its page: Python, or commands, or neither; and why it is not run, if it is not."""

    line: int
    kind: str  # python, shell or text
    source: str
    why_not: str = ""
    commands: tuple[Command, ...] = field(default=())


def pages() -> list[Path]:
    """Pages with code; those of the gallery are made from the examples, which have tests of their own."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if ROOT / "docs" / "examples" not in page.parents]


def name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


def blocks(text: str) -> list[Block]:
    """All code blocks and hidden ones: those with fences, in any indentation, and indented ones."""
    found: list[Block] = []
    why_not, asked = "", 0
    for token in MarkdownIt().parse(flat(text)):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block" and (directive := _DIRECTIVE.fullmatch(token.content)):
            what, content = directive.groups()
            if what == "hidden":
                found.append(Block(line, "python", content + "\n"))
            elif not content or why_not:
                raise ValueError(f"Line {line}: a skip directive without a reason, or two for one block.")
            else:
                why_not, asked = content, line
        elif token.type in {"fence", "code_block"}:
            start = line + (token.type == "fence")
            found.append(_block(start, token.info.split()[:1], token.content, why_not))
            why_not = ""
        elif why_not and token.nesting >= 0 and token.type not in {"bullet_list_open", "list_item_open"}:
            raise ValueError(f"Line {asked}: a skip directive, and then no code block.")
    if why_not:
        raise ValueError(f"Line {asked}: a skip directive, and then no code block.")
    return found


def flat(text: str) -> str:
    """The page with the contents of admonitions and tabs at the margin, line by line: CommonMark knows neither."""
    lines: list[str] = []
    depth, fence = 0, ""
    for full in text.splitlines():
        while not fence and depth and full.strip() and not full.startswith("    " * depth):
            depth -= 1
        line = full[4 * depth :] if full.strip() else ""
        if mark := _FENCE.match(line):
            fence = mark[1] if not fence else "" if mark[1] == fence else fence
        elif not fence and _CONTAINER.match(line):
            depth += 1
            line = ""
        lines.append(line)
    return "\n".join(lines) + "\n"


def _block(line: int, language: list[str], source: str, why_not: str) -> Block:
    info = language[0].lower() if language else ""
    if info in PYTHON:
        return Block(line, "python", source, why_not)
    program = source.removeprefix("$ ").split(maxsplit=1)[0].rpartition("/")[2] if source.strip() else ""
    if info in SHELL or (not info and program in {COMMAND, *OTHERS}):
        return Block(line, "shell", source, why_not, () if why_not else tuple(commands(source)))
    if info not in NO_CODE or (not info and not why_not):
        raise ValueError(
            f"Line {line}: a block of {info or 'no language'}, which the tests do not run: "
            "fence it as python, shell or text, or say why not by <!-- skip: reason -->."
        )
    return Block(line, "text", source, why_not)


def commands(source: str) -> list[Command]:
    """Lines of a shell block as commands; if one begins with "$ ", the others are what commands print."""
    lines = source.replace("\\\n", " ").splitlines()
    transcript = any(line.startswith("$ ") for line in lines)
    found: list[Command] = []
    for line in lines:
        if transcript and not line.startswith("$ "):
            last = found.pop()
            found.append(Command(last.words, f"{last.printed}{line}\n", last.why_not))
        elif words := tuple(shlex.split(line.removeprefix("$ "), comments=True)):
            found.append(Command(words, why_not=_why_not(words)))
    return found


def _why_not(words: tuple[str, ...]) -> str:
    if words[0] != COMMAND:
        return "a command of another program"
    if "--data-dir" in words:
        return "needs the data folder"
    if words[1] == "serve" and not {"--prepare-only", "--help"} & set(words):
        return "runs until it is stopped"
    return ""

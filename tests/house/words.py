"""Find headless clauses in docstrings, comments and documents: clauses that name no actor.

    python tests/house/words.py [PATH ...]      every text of the project, or of these places

"Who has waited so long asks for it" leaves the actor to be guessed. "A root that has waited for
four turns asks for the cursor" does not. So a sentence must not begin with *who*,
*whoever*, *whose*, *whosoever*, *what*, *whatever*, or *which* as its subject, nor have one of the
first four after a preposition or a conjunction. Questions may, and so may quoted words and code.

Each finding is one line, ``FILE:LINE: the words``; the exit status is 1 where there is one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Folders whose texts are judged, and the endings that are read there.
FOLDERS = (
    "lmdbio",
    "csrc",
    "docs",
    "benchmarks",
    "examples",
    "packaging",
    "provenance",
    "tests",
    ".",
)
ENDINGS = {".py", ".c", ".h", ".md"}

#: A sentence begins after these; a colon ends what it explains, a semicolon a clause.
BREAK = r"(?:^|(?<=[.;:!?])\s+|(?<=\.\))\s+)"
REST = r"\b[^.;:?!]*)(?P<end>.?)"
FIRST = re.compile(rf"{BREAK}(?P<words>(?:Who|Whoever|Whose|Whosoever|What|Whatever|Which){REST}")
LATER = re.compile(
    r"(?P<words>\b(?:and|as|at|because|but|by|for|from|if|of|on|or|than|then|to|until|when|where|with)"
    rf"\s+(?:who|whoever|whosoever){REST}"
)


@dataclass(frozen=True, slots=True)
class Text:
    """A stretch of prose: lines joined, and where it begins.

    Attributes:
        line: number of its first line, from 1.
        words: the prose, its lines kept.
    """

    line: int
    words: str


def of_python(source: str) -> Iterator[Text]:
    """Yield the docstrings and the blocks of comments of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield Text(node.body[0].lineno, docstring)
    begun, block, last = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1 and block:
            yield Text(begun, "\n".join(block))
            block = []
        if not block:
            begun = line
        block.append(token.string.lstrip("#:! "))
        last = line
    if block:
        yield Text(begun, "\n".join(block))


def of_c(source: str) -> Iterator[Text]:
    """Yield the comments of a C file."""
    for match in re.finditer(r"/\*.*?\*/", source, re.DOTALL):
        lines = [re.sub(r"^\s*(/\*+|\*/|\*)?\s?", "", line) for line in match[0].splitlines()]
        yield Text(source.count("\n", 0, match.start()) + 1, "\n".join(lines).rstrip("*/ "))


def of_markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs and the items of a document, without its titles and code."""
    begun, block, is_code = 0, [], False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        is_title = line.startswith("#")
        if block and (is_fence or is_title or item or not line.strip()):
            yield Text(begun, "\n".join(block))
            block = []
        if is_fence:
            is_code = not is_code
        elif not (is_code or is_title) and line.strip():
            if not block:
                begun = number
            block.append(line[item.end() :] if item else line)


def prose(words: str) -> str:
    """Blank what is no prose: code, quotations, drawings and tables, of the same length."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "_", match[0])

    words = re.sub(r"``[^`]*``|`[^`\n]*`|\"[^\"\n]*\"", blank, words)
    return re.sub(r"(?m)^( {4,}\S.*| *[|>].*)$", lambda m: " " * len(m[0]), words)


def headless(text: Text) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each headless clause."""
    paragraphs = re.split(r"(\n\s*\n|\n(?=\s*[-*]\s))", prose(text.words))
    at = 0
    for paragraph in paragraphs:
        body = re.sub(r"^(\s*)[-*] ", lambda m: " " * len(m[0]), paragraph)
        lead = len(body) - len(body.lstrip())
        flat = body.lstrip().replace("\n", " ")
        for pattern in (FIRST, LATER):
            for match in pattern.finditer(flat):
                if match["end"] == "?":
                    continue
                offset = at + lead + match.start("words")
                line = text.line + text.words.count("\n", 0, offset)
                yield line, " ".join(match["words"].split())[:60]
        at += len(paragraph)


def judge(path: Path) -> list[str]:
    """Return a finding for each headless clause of a file, as ``FILE:LINE: words``."""
    source = path.read_text(encoding="utf-8")
    kinds = {".py": of_python, ".md": of_markdown}
    texts = kinds.get(path.suffix, of_c)(source)
    shown = path.resolve()
    name = shown.relative_to(ROOT) if shown.is_relative_to(ROOT) else path
    found = sorted({each for text in texts for each in headless(text)})
    return [f"{name}:{line}: {words}" for line, words in found]


def files() -> list[Path]:
    """Return every text that the project's rules hold for."""
    found = {path for folder in FOLDERS for path in below(ROOT / folder, deep=folder != ".")}
    return sorted(found)


def below(folder: Path, *, deep: bool = True) -> list[Path]:
    """Return the texts of a folder, or the one file that it is."""
    if folder.is_file():
        return [folder]
    return sorted(
        path
        for path in (folder.rglob("*") if deep else folder.glob("*"))
        if path.suffix in ENDINGS and "_lmdbio" not in path.name and path.is_file()
    )


def main() -> int:
    paths = [path for each in sys.argv[1:] for path in below(Path(each))] or files()
    findings = [finding for path in paths for finding in judge(path)]
    print("\n".join(findings) if findings else f"{len(paths)} texts, no headless clause")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

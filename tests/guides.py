"""The pages that people read, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path

from .rules import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks/README.md",
]


def fences(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def command_lines(page: Path, program: str) -> list[str]:
    """Return the command lines of a page that call ``program``, without their comments."""
    return [
        line.split("  #")[0].strip()
        for block in fences(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith(f"{program} ")
    ]


def split(page: Path) -> tuple[dict[str, str], list[str]]:
    """Return the modules that a page defines, blocks whose first line is ``# name.py``, and its other Python blocks."""
    modules: dict[str, str] = {}
    blocks = []
    for block in fences(page, "python"):
        if found := re.match(r"# (\w+\.py)\n", block):
            modules[found[1]] = block
        else:
            blocks.append(block)
    return modules, blocks

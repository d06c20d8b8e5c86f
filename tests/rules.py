"""The repository's own rules, as functions of a tree, so that the tests can hold them against a seeded violation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MAX_LINES = 500


def project(root: Path = ROOT) -> dict[str, Any]:
    """Return pyproject.toml as data."""
    return tomllib.loads((root / "pyproject.toml").read_text())


def rooms(root: Path = ROOT) -> dict[str, Path]:
    """Return the folder of each top package: ``torchstone.compiler`` is ``compiler/``."""
    return {name: root / folder for name, folder in project(root)["tool"]["setuptools"]["package-dir"].items()}


def sources(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Yield (module name, file) of every Python file of the package."""
    for name, folder in rooms(root).items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            yield ".".join((name, *parts)), path


def packages(root: Path = ROOT) -> set[str]:
    """Return the packages the tree holds: every folder with Python files."""
    return {name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in sources(root)}


def without_init(root: Path = ROOT) -> list[Path]:
    """Return folders that hold Python files and no ``__init__.py``: setuptools would ship them, import would differ."""
    return sorted({path.parent for _, path in sources(root) if not (path.parent / "__init__.py").exists()})


def too_long(root: Path = ROOT) -> list[str]:
    """Return the files past the length where a file wants splitting, tests included."""
    files = [path for _, path in sources(root)] + sorted((root / "tests").rglob("*.py"))
    return [str(p.relative_to(root)) for p in files if len(p.read_text().splitlines()) > MAX_LINES]


def copy_installed(target: Path, root: Path = ROOT) -> Path:
    """Copy the rooms to where an installed package has them, ``target/torchstone/<room>``, and return ``target``."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name, folder in sorted(rooms(root).items()):
        shutil.copytree(folder, target.joinpath(*name.split(".")), ignore=ignore, dirs_exist_ok=True)
    return target


IMPORT_WITHOUT = """
import importlib, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")
blocked, wanted = sys.argv[1].split(","), sys.argv[2].split(",")
sys.meta_path.insert(0, Blocker())
for name in wanted:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


def import_without(blocked: list[str], modules: list[str], path: Path | None = None) -> str:
    """Import ``modules`` in a new process where ``blocked`` cannot be imported; return a line for each that fails."""
    command = [sys.executable, "-c", IMPORT_WITHOUT, ",".join(blocked), ",".join(modules)]
    environment = {"PYTHONPATH": str(path)} if path else {}
    done = run(command, environment=environment, cwd=path or ROOT.parent)
    assert done.returncode == 0, done.stdout
    return done.stdout


def run(
    command: list[str], *, environment: dict[str, str] | None = None, cwd: Path = ROOT, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a tool and return its exit code with stdout and stderr together."""
    import os

    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"} | (environment or {}),
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

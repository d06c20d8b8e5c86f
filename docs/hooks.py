"""What MkDocs runs while it builds the site."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

_folders: list[tempfile.TemporaryDirectory[str]] = []


@event_priority(100)  # before mkdocstrings reads its paths
def on_config(config: Any) -> Any:
    """Show mkdocstrings the rooms as ``torchstone.<room>``, which is where they are once installed.

    The API pages then need no installed torchstone, nor torch: docstrings are read from the sources and nothing is
    imported.
    """
    root = Path(config.config_file_path).parent
    rooms = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    _folders.append(tempfile.TemporaryDirectory(prefix="torchstone-docs-"))
    package = Path(_folders[-1].name, "torchstone")
    package.mkdir()
    for entry in (root / "torchstone").iterdir():
        (package / entry.name).symlink_to(entry)
    for name, folder in rooms.items():
        if "." in name:
            (package / name.rpartition(".")[2]).symlink_to(root / folder)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [str(package.parent)]
    return config


def on_post_build(config: Any) -> None:
    """Remove the folder."""
    while _folders:
        _folders.pop().cleanup()

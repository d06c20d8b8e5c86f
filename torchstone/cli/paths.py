"""Options that take a path. Each is tried as it is read, before any work: a run of hours does not end in a bad path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from torchstone.conformance.errors import InputError
from torchstone.conformance.files import check_file, check_folder

Check = Callable[[Path, str], None]


def output_file(*names: str, help: str) -> Any:
    """Return an option for a file that will be written. Folders that are missing will be made."""
    return path_option(check_file, *names, help=help)


def output_folder(*names: str, help: str) -> Any:
    """Return an option for a folder that will be written into, and made where it is not there."""
    return path_option(check_folder, *names, help=help)


def input_file(*names: str, help: str) -> Any:
    """Return an option for a file that will be read."""
    return path_option(_check_input(os.path.isfile, "file"), *names, help=help)


def input_folder(*names: str, help: str) -> Any:
    """Return an option for a folder that will be read."""
    return path_option(_check_input(os.path.isdir, "folder"), *names, help=help)


def path_option(check: Check, *names: str, help: str) -> Any:
    """Return an option whose values ``check(path, name of the option)`` refuses by raising InputError."""

    def checked(value: Any) -> Any:
        for path in value if isinstance(value, list | tuple) else [value]:
            if path is not None:
                check(Path(path), names[0])
        return value

    checked.tries_path = True
    return typer.Option(*names, help=help, callback=checked)


def _check_input(is_right: Callable[[Path], bool], kind: str) -> Check:
    def check(path: Path, option: str) -> None:
        try:
            if not is_right(path):
                what = f"is not a {kind}" if os.path.lexists(path) else f"no such {kind}"
                raise InputError(f"{path}: {what}; give another {option}")
            if kind == "folder":
                os.scandir(path).close()
            else:
                path.open("rb").close()
        except (OSError, ValueError) as error:  # a NUL in a name
            why = getattr(error, "strerror", None) or str(error)
            raise InputError(f"cannot read {path}: {why}; give another {option}") from error

    return check

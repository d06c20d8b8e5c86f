"""Fill a folder with torchstone, for a Python that has PyTorch for a GPU: ``python tests/gpu/site_folder.py FOLDER``.

The packages that torchstone needs and the Python lacks go there too, but for PyTorch, which has to be there, and MLIR,
without which the built-in targets but TensorRT are absent. The Python itself stays as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("torch", "torch-mlir")


def lacking() -> list[str]:
    """The requirements of ``pyproject.toml`` that this Python does not meet."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    return [one for one in asked if (wish := Requirement(one)).name not in LEFT_OUT and not _met(wish)]


def _met(wish: Requirement) -> bool:
    try:
        return wish.specifier.contains(version(wish.name), prereleases=True)
    except PackageNotFoundError:
        return False


def fill(folder: Path) -> None:
    """Install into the folder what is lacking, then torchstone."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(folder), "--no-deps"]
    if wanted := lacking():
        subprocess.run([*install, *wanted], check=True)
    found = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    subprocess.run([*install, "--no-build-isolation", str(ROOT)], check=True, env=os.environ | {"PYTHONPATH": found})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fill(Path(sys.argv[1]).absolute())

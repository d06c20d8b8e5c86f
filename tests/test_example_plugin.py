"""The backend in examples/: installed as its README says, it is found by its entry point and put on trial."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from torchstone.conformance.store import Store

from .rules import ROOT
from .warm_python import WarmPython


@pytest.mark.torture
def test_the_plugin_is_installed_found_and_tried(tmp_path: Path, warm_python: WarmPython) -> None:
    for module in ("pip", "setuptools"):
        try:
            version(module)
        except PackageNotFoundError:
            pytest.skip(f"{module} is not installed")
    source, site, store = tmp_path / "source", tmp_path / "site", tmp_path / "results.sqlite"
    shutil.copytree(ROOT / "examples" / "backend_plugin", source)  # setuptools builds in the folder it is given

    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", site)
    subprocess.run([sys.executable, *pip, source], cwd=tmp_path, check=True)
    ops = [word for op in ("add", "exp", "mm", "mT", "sort") for word in ("--op", op)]
    words = ("-m", "torchstone", "run", "--backend", "numpy", *ops, "--limit", 2, "--jobs", 1, "--store", store)
    done = warm_python.run(*words, cwd=tmp_path, environment={"PYTHONPATH": str(site)})
    assert done.returncode == 0, done.stderr
    with Store(store, create=False) as db:
        rows = db.verdicts("r1").set_index("op")
        assert set(db.run("r1").versions) >= {"numpy", "torch"}
    assert set(rows.backend) == {"numpy"}
    outcomes = rows.groupby("op").outcome.agg(set).to_dict()
    assert outcomes["exp"] == outcomes["mm"] == {"pass"} and "pass" in outcomes["add"]
    assert '"numpy": ["exp"]' in rows.evidence["exp"].iloc[0] and "unproven" not in "".join(rows.evidence)
    assert outcomes["sort"] == {"unsupported"}
    assert rows.message["sort"].iloc[0] == "no NumPy function for aten.sort.default"

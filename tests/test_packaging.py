"""The distribution: what is installed, under which licence, and that what the metadata names exists."""

from __future__ import annotations

import importlib
import re
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import torchstone

from .rules import ROOT, packages, project, rooms, run


def test_version_is_told_once() -> None:
    version = project()["project"]["version"]
    assert torchstone.__version__ == version == metadata.version("torchstone")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_licence() -> None:
    assert project()["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text


@pytest.mark.parametrize("group", ["console_scripts", "torchstone.backends"])
def test_entry_points_load(group: str) -> None:
    data = project()["project"]
    table = data["scripts"] if group == "console_scripts" else data["entry-points"][group]
    for where in table.values():
        module, _, attribute = where.partition(":")
        assert hasattr(importlib.import_module(module), attribute), where


def test_installed_entry_points_are_the_declared_ones() -> None:
    declared = project()["project"]["entry-points"]["torchstone.backends"]
    installed = {point.name for point in metadata.entry_points(group="torchstone.backends") if point.dist}
    assert set(declared) <= installed, "the installed metadata is old: run `make install`"


def test_pins_fit_the_requirements() -> None:
    from packaging.requirements import Requirement

    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            pins[name] = version
    data = project()["project"]
    wanted = [*data["dependencies"], *(line for lines in data["optional-dependencies"].values() for line in lines)]
    requirements = [Requirement(line) for line in wanted]
    for requirement in requirements:
        if requirement.name in pins:
            assert requirement.specifier.contains(pins[requirement.name]), requirement
    exact = {requirement.name for requirement in requirements if str(requirement.specifier).startswith("==")}
    unpinned = {requirement.name for requirement in requirements} - set(pins) - exact
    assert unpinned <= {"tensorrt"}, "a dependency without a pin is another version on another day"
    assert "mlir-python-bindings" not in {requirement.name for requirement in requirements}


def test_make_and_tox_have_the_same_checks() -> None:
    makefile = (ROOT / "Makefile").read_text()
    tox = (ROOT / "tox.ini").read_text()
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, flags=re.MULTILINE))
    environments = set(re.findall(r"^\[testenv:([a-z]+)\]", tox, flags=re.MULTILINE))
    assert environments == {
        "tests",
        "lint",
        "types",
        "imports",
        "docs",
        "conformance",
        "controls",
        "ray",
        "releases",
        "machines",
        "selftrial",
        "torture",
    }
    assert environments - {"tests"} | {"test", "run", "help"} <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text() and "make test" in (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an sdist and a wheel, built by the backend pip uses, in a copy of the tree."""
    setuptools = pytest.importorskip("setuptools", minversion="77")
    assert setuptools
    import shutil

    tree = tmp_path_factory.mktemp("tree")
    for folder in rooms().values():
        shutil.copytree(folder, tree / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    code = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    done = run([sys.executable, "-c", code], cwd=tree)
    assert done.returncode == 0, done.stdout
    return tree / "dist"


def test_wheel_holds_every_package_and_the_data_files(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.replace(".", "/") + "/__init__.py" for name in packages()} <= names
    assert "torchstone/reports/templates/report.html.j2" in names
    info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
    assert f"{info}/licenses/LICENSE" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"torchstone", info}, "a room at the top of site-packages would shadow other packages"


def test_sdist_builds_the_same_package(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    folders = {name.replace(".", "/"): path.name for name, path in rooms().items()}
    for name in zipfile.ZipFile(wheel).namelist():
        if ".dist-info/" not in name:
            top = max((key for key in folders if name.startswith(key + "/")), key=len)
            assert folders[top] + name[len(top) :] in held, name


@pytest.mark.torture
def test_the_wheel_works_outside_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "installed"
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", str(place)]
    done = run([sys.executable, "-m", "pip", "install", *options, str(wheel)], cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    environment = {"PYTHONPATH": str(place)}
    where = "import torchstone.conformance.runner as r, torchstone.compiler as c; print(r.__file__, c.__file__)"
    done = run([sys.executable, "-c", where], cwd=tmp_path, environment=environment)
    assert [Path(word).is_relative_to(place) for word in done.stdout.split()] == [True, True], done.stdout
    torchstone_command = [sys.executable, str(place / "bin" / "torchstone")]
    done = run([*torchstone_command, "--version"], cwd=tmp_path, environment=environment)
    assert project()["project"]["version"] in done.stdout
    done = run(
        [*torchstone_command, "run", "--backend", "linalg", "--op", "neg", "--limit", "1"],
        cwd=tmp_path,
        environment=environment,
    )
    assert done.returncode == 0 and re.search(r"linalg +1 +1 +1 of 1", done.stdout), done.stdout


@pytest.mark.parametrize("workflow", ["tests", "docs", "release"])
def test_workflows_call_what_exists(workflow: str) -> None:
    yaml = pytest.importorskip("yaml")
    data = yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text())
    assert data["name"] == workflow and data["jobs"]
    makefile = (ROOT / "Makefile").read_text()
    checks = [
        check for job in data["jobs"].values() for check in job.get("strategy", {}).get("matrix", {}).get("check", [])
    ]
    for job in data["jobs"].values():
        assert job["runs-on"] and job["steps"]
        for step in job["steps"]:
            called = re.findall(r"^make ([a-z]+)", step.get("run", ""))
            assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in [*called, *checks])

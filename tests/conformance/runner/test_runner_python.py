"""Backends in other interpreters: what is refused and how, and a run of two in one store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torture_cases import torture_case

from torchstone.cli.workers import check_usable, parse_pythons, pool_with_pythons
from torchstone.conformance.errors import InputError
from torchstone.conformance.runner import interpreter
from torchstone.conformance.runner.interpreter import Interpreter
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.run import run_cases
from torchstone.conformance.store import VERDICT_COLUMNS, Store

HERE = Path(__file__).parents[1] / "helpers"


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A virtual environment with nothing in it."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def furnished(tmp_path_factory) -> Path:
    """A virtual environment with this one's packages and without torchstone: its finder is in a .pth not read there."""
    folder = tmp_path_factory.mktemp("furnished")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    return folder


def test_what_is_no_interpreter_of_a_backend_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("not a Python")
    for given, word in [
        (["eager"], "takes NAME=PATH"),
        (["=x"], "takes NAME=PATH"),
        ([f"eagr={sys.executable}"], 'unknown backend "eagr".*eager'),
        ([f"eager={tmp_path}/none"], "no Python at"),
        ([f"eager={tmp_path}"], "no Python at .*bin/python"),
        ([f"eager={tmp_path}/notes.txt"], "cannot be executed"),
        ([f"eager={sys.executable}"] * 2, "two interpreters"),
    ]:
        with pytest.raises(InputError, match=word):
            parse_pythons(given, ["eager", "linalg"])
    with pytest.raises(InputError, match="on this machine"):
        parse_pythons([f"eager={sys.executable}"], ["eager"], "ray")
    assert parse_pythons([f"eager={sys.executable}"], ["eager"]) == {"eager": sys.executable}


def test_an_environment_may_be_named_by_its_folder(bare):
    assert Interpreter.at(str(bare)).path == str(bare / "bin" / "python")


def test_an_interpreter_without_pytorch_says_so(bare):
    with pytest.raises(InputError, match=r'backend "eager": .*bin/python: cannot import torch .*-m pip install torch'):
        check_usable(["eager"], {"eager": str(bare / "bin" / "python")})


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("#!/bin/sh\necho no such luck >&2\nexit 3\n", "no such luck"),
        ("#!/bin/sh\nexit 3\n", "exited with code 3"),
        ("no script", "Exec format error"),
        ("#!/bin/bash\necho '{\"protocol\": 99}' >&$2\n", "speaks protocol 99"),
    ],
)
def test_what_is_no_python_says_so(tmp_path, script, word):
    (tmp_path / "python").write_text(script)
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(InputError, match=word):
        check_usable(["eager"], {"eager": str(tmp_path / "python")})


def test_another_protocol_is_refused(monkeypatch, furnished):
    monkeypatch.setattr(interpreter, "VERSION", 99)
    monkeypatch.chdir(HERE)
    with pytest.raises(InputError, match=r"speaks protocol \d of the runner, this is 99"):
        check_usable(["torture_backend:Torture"], {"torture_backend:Torture": str(furnished / "bin" / "python")})


def test_two_interpreters_one_run_one_store(tmp_path, monkeypatch, furnished):
    monkeypatch.chdir(HERE)
    python = str(furnished / "bin" / "python")
    backends = ["eager", "torture_backend:Where"]
    with Store(tmp_path / "results.sqlite") as store:
        name = store.new_run("", {"backends": backends}, {})
        cases = [torture_case("obey", 0), torture_case("abort", 1)]
        run_cases(lambda: cases, backends, store, name, pool=pool_with_pythons(Pool, {"torture_backend:Where": python}))
        rows = [dict(zip(VERDICT_COLUMNS, row, strict=True)) for row in store.iter_verdicts(name)]
        assert store.counts(name) == {"eager": {"pass": 2}, "torture_backend:Where": {"pass": 1, "crash": 1}}
    (passed,) = [row for row in rows if row["backend"] != "eager" and row["outcome"] == "pass"]
    assert python in passed["evidence"]

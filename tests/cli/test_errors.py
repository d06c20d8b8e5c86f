"""What a user gets wrong is one line on stderr, with a suggestion, and exit code 2; nothing heavy is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchstone import cli
from torchstone.cli.options import DTYPES
from torchstone.conformance.store import SCHEMA_VERSION, Store

pytestmark = pytest.mark.usefixtures("fork_server")


def invoke(capfd, *args: object) -> tuple[int, str, str]:
    code = cli.invoke([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as db:
        db.finish(db.new_run("torchstone run -b eager", {"backends": ["eager"]}, {}))
    return path


@pytest.mark.parametrize(
    "args, message",
    [
        (["rnu"], 'unknown command "rnu" (did you mean "run"?)'),
        (["run", "--bakend", "eager"], "--backend"),
        (["run"], "give at least one --backend (known: eager, "),
        (
            ["run", "-b", "linlag"],
            'unknown backend "linlag" (did you mean "linalg"?); `torchstone backends` lists them',
        ),
        (["run", "-b", "nowhere:thing"], 'backend "nowhere:thing" cannot be loaded'),
        (["run", "-b", "eager", "--dtype", "flaot32"], 'unknown dtype "flaot32" (did you mean "float32"?)'),
        (["run", "-b", "eager", "--source", "opinof"], 'unknown source "opinof" (did you mean "opinfo"?)'),
        (["run", "-b", "eager", "--jobs", "many"], '--jobs takes a number from 1 or auto, got "many"'),
        (["run", "-b", "eager", "--limit", "0"], "--limit"),
        (["run", "--resume", "latest", "-b", "eager"], "--backend cannot go with --resume"),
        (["replay", "nothing", "-b", "eager"], "neither a file nor a case id"),
        (["replay", "x.case", "-b", "eagre"], 'unknown backend "eagre" (did you mean "eager"?)'),
        (["runs", "--format", "jsno"], "--format"),
        (["ops", "--dtype", "int33"], 'unknown dtype "int33" (did you mean "int32"?)'),
    ],
)
def test_bad_usage(args, message, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(capfd, *args)
    assert code == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err, err
    assert list(tmp_path.iterdir()) == [], "a refused command left something behind"


def test_unknown_op(capfd, tmp_path):
    code, _, err = invoke(capfd, "run", "-b", "eager", "--op", "sofmax", "--store", tmp_path / "s.sqlite")
    assert code == 2 and err == 'error: unknown op "sofmax" (did you mean "softmax"?)\n'
    code, _, err = invoke(capfd, "replay", "opinfo:sofmax:float32:0", "-b", "eager")
    assert code == 2 and err == 'error: unknown op "sofmax" (did you mean "softmax"?)\n'
    code, _, err = invoke(capfd, "replay", "opinfo:add:float32:100000", "-b", "eager")
    assert code == 2 and "no sample 100000" in err
    assert not (tmp_path / "s.sqlite").exists(), "a refused run was recorded"


def test_unknown_run(capfd, store):
    for args in (["run", "--resume", "r9"], ["replay", "opinfo:add:float32:0", "-b", "eager", "--run", "r9"]):
        code, _, err = invoke(capfd, *args, "--store", store)
        assert code == 2 and 'unknown run "r9" (did you mean "r1"?)' in err


def test_bad_stores(capfd, store, tmp_path):
    missing = tmp_path / "missing.sqlite"
    assert invoke(capfd, "runs", "--store", missing)[0] == 2
    assert not missing.exists()
    with Store(store) as db:
        db._db.execute("UPDATE meta SET value = ?", (str(SCHEMA_VERSION + 1),))
    before = store.read_bytes()
    code, _, err = invoke(capfd, "run", "-b", "eager", "--op", "add", "--store", store)
    assert code == 2 and "newer torchstone" in err and err.count("\n") == 1
    assert store.read_bytes() == before
    code, _, err = invoke(capfd, "run", "-b", "eager", "--op", "add", "--store", store / "below.sqlite")
    assert code == 2 and "give another --store" in err


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 64, (1 << 40).to_bytes(8, "little") + b"{}"])
def test_bad_case_files(capfd, tmp_path, content):
    path = tmp_path / "broken.case"
    path.write_bytes(content)
    code, _, err = invoke(capfd, "replay", path, "-b", "eager")
    assert code == 2 and err.startswith(f"error: {path}: ") and err.count("\n") == 1


def test_a_refusal_and_the_help_load_neither_torch_nor_mlir():
    script = """
import sys
import torchstone
from torchstone import cli
wrong = ["run", "-b", "linlag"], ["run", "-b", "eager", "--dtype", "x"]
codes = [cli.invoke(args) for args in (["--help"], ["--version"], *wrong)]
heavy = {"torch", "torch_mlir", "mlir", "pandas", "numpy"} & set(sys.modules)
sys.exit(f"{codes} {heavy}" if heavy or codes != [0, 0, 2, 2] else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_m_torchstone_is_the_command():
    done = subprocess.run([sys.executable, "-m", "torchstone", "rnu"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, 'error: unknown command "rnu" (did you mean "run"?)\n')


def test_the_public_api_is_lazy_and_complete():
    import torchstone

    assert torchstone.__version__ and {"compile", "__version__"} <= set(dir(torchstone))
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        torchstone.compil  # noqa: B018


def test_dtypes_are_those_of_the_cases():
    from torchstone.conformance.program.literals import DTYPES as known
    from torchstone.conformance.sources import opinfo

    assert set(DTYPES) <= set(known)
    of_the_database = {dtype for op in opinfo.op_names() for dtype in opinfo.dtypes_of(op)}
    assert set(DTYPES) == of_the_database


def test_every_command_has_its_module():
    for _, where, _ in cli.COMMANDS:
        path = Path(cli.__file__).parent / "commands" / (where.partition(":")[0].rpartition(".")[2] + ".py")
        assert path.exists(), f"{where} is listed but not there"

"""What cannot be used is said before any work: paths, by every option that takes one, and names that nothing has."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from torchstone import cli
from torchstone.cli.paths import input_file, path_option
from torchstone.conformance import files
from torchstone.conformance.errors import InputError
from torchstone.conformance.sources import error_inputs, functions, modules, names, opinfo, programs
from torchstone.conformance.store import Store, opening
from torchstone.fuzz.selftrial import results
from torchstone.reports import junit

pytestmark = pytest.mark.usefixtures("fork_server")

WRITTEN_FILE, WRITTEN_FOLDER, READ_FILE, READ_FOLDER, READ_STORE, WRITTEN_STORE = range(6)
PATHS = {
    "run --corpus": READ_FOLDER, "run --store": WRITTEN_STORE, "run --expect": READ_FILE, "run --junit": WRITTEN_FILE,
    "report --out": WRITTEN_FOLDER, "report --store": READ_STORE, "replay --store": READ_STORE,
    "bisect --store": READ_STORE,
    "fuzz --out": WRITTEN_FOLDER, "fuzz --store": WRITTEN_STORE, "fuzz --known": READ_FOLDER,
    "fuzz --corpus": WRITTEN_FOLDER,
    "compile --engine-cache": WRITTEN_FOLDER, "reduce --out": WRITTEN_FOLDER,
    "reduce --keep": WRITTEN_FOLDER, "reduce --mlir": READ_FILE, "reduce --store": READ_STORE,
    "selftrial --out": WRITTEN_FILE, "controls --out": WRITTEN_FILE,
    "runs --store": READ_STORE, "runs list --store": READ_STORE, "runs show --store": READ_STORE,
    "runs diff --store": READ_STORE, "runs prune --store": READ_STORE, "runs export --out": WRITTEN_FILE,
    "runs export --store": READ_STORE, "expect check --expect": READ_FILE, "expect check --store": READ_STORE,
    "expect check --junit": WRITTEN_FILE, "expect update --expect": WRITTEN_FILE, "expect update --store": READ_STORE,
}  # fmt: skip
"""Every option that takes a path, and what it does with it: a new one has to take its place."""

TEXTS = {
    "run --python",
    "fuzz --python",
    "replay --python",
    "bisect FILE|CASE",
    "replay FILE|CASE",
    "replay --after",
    "reduce FILE|CASE",
    "reduce --python",
    "compile FILE:FN",
}
"""What has a path in it, and is tried below and in tests/cli/test_compile.py."""

NEEDED = {
    "run": ["--backend", "eager", "--op", "add"], "replay": ["opinfo:add:float32:0", "--backend", "eager"],
    "reduce": ["opinfo:add:float32:0", "--backend", "eager"], "bisect": ["opinfo:add:float32:0", "--backend", "linalg"],
    "fuzz": ["--backend", "eager"], "compile": ["model.py:forward"],
    "runs show": ["r1"], "runs diff": ["r1", "r1"], "runs prune": ["r1"], "runs export": ["--out", "x.csv"],
    "expect update": ["--expect", "x.toml"],
}  # fmt: skip


def options(app: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the command and name of every option and argument of an app, its type, and what typer is told of it."""
    functions = [(row.name or row.callback.__name__.replace("_", "-"), row.callback) for row in app.registered_commands]
    callback = app.registered_callback
    for name, function in [*functions, *([("", callback.callback)] if callback and prefix else [])]:
        for key, hint in typing.get_type_hints(function, include_extras=True).items():
            for info in getattr(hint, "__metadata__", ()):
                texts = [text for text in (info.default, *(info.param_decls or ())) if str(text).startswith("--")]
                shown = texts[0] if texts else info.metavar or f"--{key}"
                yield " ".join(filter(None, (prefix, name, shown))), hint.__origin__, info
    for group in app.registered_groups:
        yield from options(group.typer_instance, group.name)


def has_path(kind: Any) -> bool:
    return kind is Path or any(map(has_path, typing.get_args(kind)))


def test_every_option_that_takes_a_path_tries_it() -> None:
    found = list(options(cli.build()))
    paths = {name: info for name, kind, info in found if has_path(kind)}
    assert paths.keys() == PATHS.keys()
    assert [name for name, info in paths.items() if not getattr(info.callback, "tries_path", False)] == []
    texts = {n for n, kind, info in found if not has_path(kind) and {"FILE", "PATH"} & {*_words(info.metavar)}}
    assert texts == TEXTS


def _words(metavar: str | None) -> list[str]:
    return (metavar or "").replace("|", " ").replace("=", " ").replace(":", " ").split()


def test_an_option_that_tries_nothing_is_found() -> None:
    import typer

    def command(
        tried: typing.Annotated[Path | None, input_file("--tried", help="")] = None,
        new: typing.Annotated[list[Path] | None, typer.Option("--new")] = None,
    ) -> None: ...

    app = typer.Typer()
    command.__annotations__ = typing.get_type_hints(command, globals() | locals(), include_extras=True)
    app.command()(command)
    found = {name: getattr(info.callback, "tries_path", False) for name, kind, info in options(app) if has_path(kind)}
    assert found == {"command --tried": True, "command --new": False}


def bad_paths(kind: int, place: Path) -> list[Path]:
    """Paths that cannot be used so, in a folder of the test's own."""
    file, folder = place / "file", place / "folder"
    file.write_text("no store")
    (folder / "below").mkdir(parents=True)
    below_file, nowhere = file / "x", Path("/proc/nowhere/x")
    return {
        WRITTEN_FILE: [folder, below_file, nowhere],
        WRITTEN_FOLDER: [file, below_file, nowhere],
        READ_FILE: [folder, below_file, place / "missing"],
        READ_FOLDER: [file, below_file, place / "missing"],
        READ_STORE: [folder, file, below_file, place / "missing"],
        WRITTEN_STORE: [folder, file, below_file, nowhere],
    }[kind]


@pytest.mark.few(13)
@pytest.mark.parametrize("name", PATHS)
def test_a_bad_path_is_one_line_and_leaves_nothing(name: str, capfd, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, _, option = name.rpartition(" ")
    for path in bad_paths(PATHS[name], tmp_path):
        before = sorted(tmp_path.rglob("*"))
        needed = NEEDED.get(command, [])
        needed = [word for at, word in enumerate(needed) if option not in (word, needed[at - 1] if at else "")]
        code = cli.invoke([*command.split(), *needed, option, str(path)])
        out, err = capfd.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), (path, err)
        assert err.startswith("error: ") and str(path) in err, err
        assert sorted(tmp_path.rglob("*")) == before


def full(**_: Any) -> Any:
    return open("/dev/full", "wb")


@pytest.mark.parametrize("name", [name for name, kind in PATHS.items() if kind in (WRITTEN_FILE, WRITTEN_FOLDER)])
def test_a_full_disk_is_said_before(name: str, capfd, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    command, _, option = name.rpartition(" ")
    code = cli.invoke([*command.split(), *NEEDED.get(command, []), option, str(tmp_path / "new")])
    err = capfd.readouterr().err
    assert code == 2 and f"{tmp_path / 'new'}: No space left on device; make room, or give another {option}" in err


def test_a_store_on_a_full_disk_is_refused_before(capfd, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHSTONE_STORE", raising=False)
    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    for store in ([], ["--store", str(tmp_path / "s.sqlite")]):
        assert cli.invoke(["run", "--backend", "eager", "--op", "add", *store]) == 2
        assert "No space left on device; make room, or give another --store" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_written_is_left_as_it_is(tmp_path) -> None:
    old = tmp_path / "old"
    old.write_text("old")
    before = old.stat()
    for path in (old, tmp_path / "new", tmp_path / "a" / "b"):
        files.check_file(path)
        if path is not old:
            files.check_folder(path)
    assert list(tmp_path.iterdir()) == [old] and old.stat() == before  # reading it changes its time of access
    assert old.read_text() == "old"


def test_a_read_only_file_is_not_replaced(tmp_path, monkeypatch) -> None:
    """The system says so to whoever is not root; here the file does."""

    def refused(self: Path, mode: str = "r", **_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    kept = tmp_path / "kept"
    kept.write_text("kept")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match="kept: Permission denied; give another --junit"):
        files.check_file(kept, "--junit")


def test_a_checked_option_is_of_every_value() -> None:
    seen = []
    option = path_option(lambda path, name: seen.append((str(path), name)), "--x", help="")
    option.callback([Path("a"), Path("b")])
    option.callback(None)
    assert seen == [("a", "--x"), ("b", "--x")]


# -- a disk that fills while there is work


def test_a_disk_that_fills_names_the_run_and_loses_nothing(capfd, tmp_path, monkeypatch) -> None:
    store, cases = tmp_path / "s.sqlite", ["--op", "add", "--op", "sub", "--dtype", "all", "--limit", "5"]
    connect = opening._connect

    def small(path: Path) -> Any:
        db = connect(path)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    with monkeypatch.context() as patch:
        patch.setattr(opening, "_connect", small)
        patch.setattr("torchstone.conformance.store.store.BATCH_ROWS", 5)
        code = cli.invoke(["run", "--backend", "eager", *cases, "--store", str(store)])
        err = capfd.readouterr().err
        assert code == 2 and "database or disk is full; run r1 keeps what was written until then" in err, err
        assert f"go on: torchstone run --resume r1 --store {store}" in err
    with Store(store) as db:
        kept = len(list(db.iter_verdicts("r1")))
        assert db.run("r1").state in ("interrupted", "running") and 0 < kept < 100
    monkeypatch.setattr(opening, "process_alive", lambda pid, host: False)
    assert cli.invoke(["run", "--resume", "r1", "--store", str(store)]) == 0
    with Store(store) as db:
        assert len(list(db.iter_verdicts("r1"))) > 100


def test_a_junit_file_that_does_not_fit_is_written_later(capfd, tmp_path, monkeypatch) -> None:
    @contextmanager
    def refused(path: Path) -> Iterator[Any]:
        raise InputError(f"cannot write to {path}: No space left on device; give another path")
        yield

    store, out = tmp_path / "s.sqlite", tmp_path / "x.xml"
    with monkeypatch.context() as patch:
        patch.setattr(junit, "replace_file", refused)
        command = ["run", "--backend", "eager", "--op", "mT", "--limit", "1", "--store", str(store)]
        assert cli.invoke([*command, "--junit", str(out)]) == 2
    err = capfd.readouterr().err
    assert err.count("error:") == 1 and "run r1 has ended, and is kept" in err, err
    again = err.strip().rpartition("To go on: torchstone ")[2].split()
    assert cli.invoke(again) == 0 and out.read_text().startswith("<?xml")


def test_a_journal_has_whole_lines(tmp_path) -> None:
    path, one = tmp_path / "journal", results.TrialResult("m", "g")
    results.append_to_journal(path, one)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        with pytest.raises(InputError, match="what is in it is kept: make room, and the same command goes on"):
            results.append_to_journal(path, one)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert results.read_journal(path) == {"m": one}


# -- names


@pytest.fixture
def database(tmp_path, monkeypatch) -> Path:
    """A cache with the names of the op database."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, source in (("opinfo", opinfo), ("errors", error_inputs), ("programs", programs), ("functions", functions),
                         ("modules", modules)):  # fmt: skip
        names.keep_names(name, source.op_names())
    return tmp_path / "torchstone" / "names-opinfo.json"


WRONG = [
    (["run", "-b", "eager", "--op", "sofmax"], 'unknown op "sofmax" (did you mean "softmax"?)'),
    (["run", "-b", "eager", "--op", "!sofmax"], 'unknown op "sofmax"'),
    (["run", "-b", "eager", "--op", "*xyz"], 'no op matches "*xyz"'),
    (["run", "-b", "eager", "--case", "opinfo:sofmax:float32:0"], 'unknown op "sofmax"'),
    (["run", "-b", "eager", "--case", "opinfo:softmax:flaot32:0"], 'unknown dtype "flaot32"'),
    (["run", "-b", "eager", "--case", "opinfo:softmax:float32:one"], "the sample is a number"),
    (["run", "-b", "eager", "--case", "opinfo:softmax:float32:0:strded"], 'unknown variant "strded"'),
    (["run", "-b", "eager", "--case", "opinfo:*xyz:float32:0"], "selects nothing: of"),
    (["run", "-b", "eager", "--op", "add", "--case", "opinfo:mul"], "selects nothing: of 1 ops none matches --case"),
    (["run", "-b", "eager", "--case", "opinof:softmax"], 'unknown source "opinof"'),
    (["run", "-b", "eager", "--variant", "strded"], 'unknown variant "strded"'),
    (["run", "-b", "eager", "--dtype", "flaot32"], 'unknown dtype "flaot32"'),
    (["run", "-b", "eager", "--source", "opinof"], 'unknown source "opinof"'),
    (["run", "-b", "linlag"], 'unknown backend "linlag"'),
    (["run", "-b", "nowhere.at:all"], "there is no module nowhere"),
    (["run", "-b", "eager", "--python", "eager=/nowhere"], "no Python at /nowhere"),
    (["run", "-b", "eager", "--python", "egaer=/nowhere"], 'unknown backend "egaer"'),
    (["fuzz", "-b", "eager", "--python", "eager=/nowhere"], "no Python at /nowhere"),
    (["replay", "opinfo:add:float32:0", "-b", "eager", "--python", "eager=/nowhere"], "no Python at /nowhere"),
    (["replay", "opinfo:sofmax:float32:0", "-b", "eager"], 'unknown op "sofmax"'),
    (["replay", "opinfo:softmax:flaot32:0", "-b", "eager"], 'unknown dtype "flaot32"'),
    (["replay", "missing.safetensors", "-b", "eager"], "neither a file nor a case id"),
    (["reduce", "opinfo:sofmax:float32:0", "-b", "eager"], 'unknown op "sofmax"'),
    (["replay", "opinfo:add:float32:0", "-b", "eager", "--after", "a:b"], 'unknown case "a:b"'),
    (["reduce", "missing.safetensors", "-b", "eager"], "neither a file nor a case id"),
    (["reduce", "opinfo:add:float32:0", "-b", "linlag"], 'unknown backend "linlag"'),
    (["fuzz", "-b", "eager", "--op", "sofmax"], 'unknown op "sofmax"'),
    (["controls", "--op", "sofmax"], 'unknown op "sofmax"'),
    (["ops", "sofmax"], 'unknown op "sofmax"'),
]


def test_no_misspelt_name_waits_for_torch(database, tmp_path) -> None:
    script = """
import json, sys
from torchstone import cli
codes = [cli.invoke(args) for args in json.loads(sys.argv[1])]
heavy = {"torch", "torch_mlir", "pandas", "numpy", "scipy"} & set(sys.modules)
sys.exit(f"{codes} {heavy}" if heavy or set(codes) != {2} else 0)
"""
    command = [sys.executable, "-c", script, json.dumps([args for args, _ in WRONG])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line, (args, message) in zip(done.stderr.splitlines(), WRONG, strict=True):
        assert line.startswith("error: ") and message in line, args


def test_names_on_disk_are_of_one_pytorch(database, monkeypatch) -> None:
    known = opinfo.op_names()
    assert names.known_names("opinfo") == known
    with monkeypatch.context() as patch:
        patch.setattr(names, "version", lambda package: "0.0")
        assert names.known_names("opinfo") is None
    for text in ("", "[]", '{"of": 1, "names": ["add"]}'):
        database.write_text(text)
        assert names.known_names("opinfo") is None


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    names.keep_names("opinfo", ["add"])
    assert names.known_names("opinfo") is None

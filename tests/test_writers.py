"""Whatever writes a file or prints is in the table of writers, with what tries it: a new one has to take its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .rules import ROOT, sources

CALLS = frozenset({"print", "replace_file", "csv_rows"})
METHODS = frozenset(
    {"write_text", "write_bytes", "writerow", "writerows", "mkstemp", "echo", "secho", "confirm", "write_line", "dump",
     "warn", "fail", "skip", "xfail", "UsageError", "CollectError", "ParquetWriter", "rmtree", "save", "Console"}
)  # fmt: skip
STREAMS = frozenset({"stdout", "stderr"})
WRITING = frozenset("wax+")

HERE = "tests/writers/test_"
WRITERS: dict[str, str] = {
    "torchstone.cli.output": HERE + "terminal.py",
    "torchstone.cli.progress": HERE + "terminal.py",
    "torchstone.cli.commands.reduce": HERE + "terminal.py",
    "torchstone.cli.module_reduction": HERE + "terminal.py",
    "torchstone.reducers.mlir.write": HERE + "terminal.py",
    "torchstone.cli.expectation_report": HERE + "store.py",
    "torchstone.cli.commands.expect": HERE + "store.py",
    "torchstone.cli.commands.prune": HERE + "terminal.py",
    "torchstone.fuzz.session": HERE + "terminal.py",
    "torchstone.conformance.custom.source": "tests/conformance/custom/test_learning.py",
    "torchstone.reducers.batch": HERE + "store.py",
    "torchstone.fuzz.triage": HERE + "terminal.py",
    "torchstone.fuzz.saved": "tests/fuzz/test_cause.py",
    "torchstone.fuzz.selftrial.results": HERE + "terminal.py",
    "torchstone.conformance.controls.results": HERE + "terminal.py",
    "torchstone.fuzz.selftrial.mutation_results": HERE + "terminal.py",
    "torchstone.reports.site": HERE + "store.py",
    "torchstone.reports.junit": HERE + "store.py",
    "torchstone.reports.export": HERE + "store.py",
    "torchstone.reducers.write": HERE + "terminal.py",
    "torchstone.conformance.expectations.update": HERE + "store.py",
    "torchstone.conformance.pytest_plugin": HERE + "terminal.py",
    "torchstone.conformance.pytest_plugin.items": HERE + "terminal.py",
    "torchstone.compiler.runtime.tensorrt.engine_cache": "tests/compiler/tensorrt/test_engine_cache.py",
}
"""Modules that write what people or programs read, and where each is tried."""

NO_WRITERS: dict[str, str] = {
    "torchstone.cli": "flushes stdout",
    "torchstone.conformance.escape": "the rows of CSV themselves: tests/writers/test_escape.py",
    "torchstone.conformance.files": "bytes that its callers give it, under a name of theirs",
    "torchstone.conformance.sources.names": "PyTorch's own names, for torchstone to read again",
    "torchstone.conformance.program.case": "bytes: JSON in safetensors, which Case.load checks",
    "torchstone.fuzz.corpus": "bytes of a case, which Case.load checks",
    "torchstone.reducers.progress": "bytes of a case, which Case.load checks",
    "torchstone.reducers.script_run": "what a script says, in a file that nobody else reads",
    "torchstone.conformance.backends.native_output": "holds a backend's own stderr for its verdict",
    "torchstone.conformance.repro.compiler_paths": "the source of scripts: their reader's own compiler prints there",
    "torchstone.conformance.runner.cleanup": "removes folders that the runner has made and named",
    "torchstone.conformance.runner.worker_process": "a log whose end is told as one line",
    "torchstone.conformance.runner.process_state": "puts a worker's streams back",
    "torchstone.conformance.runner.worker": "a worker's streams, which nobody sees, and a number for the kernel",
    "torchstone.reducers.mlir.once": "one line of JSON, which reducers.mlir.write reads again",
    "torchstone.reducers.mlir.questions": "the module, in a folder of its own, for the user's command to read",
    "torchstone.fuzz.selftrial.line_map": "ids of cases and numbers of lines, in a file of its own",
    "torchstone.fuzz.selftrial.forked": "flushes both streams, so that a fork has nothing of theirs",
    "torchstone.conformance.backends.adapters.inductor_warm_files": "copies of Inductor's files, by its names",
    "torchstone.compiler.registry": "a warning of a plugin, which the command line prints by cli.output",
    "torchstone.conformance.oracle.waivers": "a page made of torchstone's own tables",
    "torchstone.compiler.runtime.tensorrt.files": "bytes that its callers give it, under a name of theirs",
    "torchstone.compiler.runtime.tensorrt.timing_cache": "bytes of TensorRT's own, for TensorRT to read again",
    "torchstone.compiler.runtime.tensorrt.simulator.values": "TensorRT's own default log, of the simulator's words",
}
"""Modules in which one of these calls writes nothing of anybody's, and why."""


def writes(path: Path) -> Iterator[str]:
    """The calls in a file that write, and the streams that it names."""
    text = path.read_text(encoding="utf-8")
    if not any(word in text for word in (*CALLS, *METHODS, *STREAMS, "open")):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in STREAMS and ast.unparse(node.value) == "sys":
            yield ast.unparse(node)
        if not isinstance(node, ast.Call):
            continue
        method = isinstance(node.func, ast.Attribute)
        name = getattr(node.func, "attr" if method else "id", "")
        words = [*node.args, *(keyword.value for keyword in node.keywords)]
        texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        opens = name in ("open", "fdopen") and any(len(text) < 4 and set(text) & WRITING for text in texts)
        if opens or name in (METHODS if method else CALLS):
            yield name


def test_every_writer_is_tried() -> None:
    found = {module: set(writes(path)) for module, path in sources()}
    found = {module: names for module, names in found.items() if names}
    known = {*WRITERS, *NO_WRITERS}
    assert {m: found[m] for m in found.keys() - known} == {}, "add each to WRITERS, and to the tests named there"
    assert known - found.keys() == set(), "these write no more"
    assert [where for where in WRITERS.values() if not (ROOT / where).is_file()] == []


@pytest.mark.parametrize("line", [
    "print(x)", "path.write_text(x)", "open(p, 'w')", "p.open('ab')", "sys.stdout.write(x)", "typer.echo(x)",
    "with replace_file(p) as file: pass", "csv.writer(f).writerow(x)", "json.dump(x, sys.stderr)",
])  # fmt: skip
def test_a_new_writer_is_found(tmp_path: Path, line: str) -> None:
    file = tmp_path / "new.py"
    file.write_text(line)
    assert list(writes(file))
    file.write_text("open(p)\np.open('rb')\nx.write(y)")
    assert not list(writes(file))

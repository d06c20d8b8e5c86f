"""Whole models on every target: right, refused with the reason, or wrong; operators, compile time, time of a call.

The models are those of the source `models`, in evaluation mode, with two rows, in float32; those of timm and of
transformers need the extra `models`. A module is compiled as it is, with the arguments its users give it. A result is
right where every tensor of it is as near to the model in float64 as eager is, within a factor. Each model has a process
of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.compiler import driver
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.conformance.oracle.equality import same_numbers
from torchstone.conformance.sources.models import EVERY, installed, op_names
from torchstone.conformance.sources.models.architectures import CHOSEN, HELD_OUT
from torchstone.conformance.sources.models.example import Example, tensors_of
from torchstone.conformance.sources.models.examples import EXAMPLES

TARGETS = ("linalg", "tosa", "stablehlo", "tensorrt")
CAPTURES = {"": "as it is", ":export": "by torch.export, for any batch size", ":dynamo": "by torch.compile"}
WAYS = tuple(target + capture for capture in CAPTURES for target in TARGETS)
ROWS = 2
START, END = "<!-- begin: benchmarks/models.py -->", "<!-- end: benchmarks/models.py -->"
FACTOR, ROOM = 8.0, 2e-6
"""A target may be this many times as far from float64 as eager, and this fraction of the greatest element further."""

_OPERATOR = {
    "linalg": re.compile(r"(?<!!)\b(?:linalg|tensor)\.(\w+)"),
    "tosa": re.compile(r"(?<!!)\btosa\.(\w+)"),
    "stablehlo": re.compile(r"(?<!!)\b(?:stablehlo|chlo)\.(\w+)"),
    "tensorrt": re.compile(r"^  %[^=]* = (\w+)\(", re.MULTILINE),
}
_DATA = frozenset({"const", "const_shape", "constant", "yield", "return", "CONSTANT", "SHAPE", "empty", "dim"})


WAYS_HELP = "repeatable [default: all, captured as it is]; " + ", ".join(
    f"{c} {how}" for c, how in CAPTURES.items() if c
)


@dataclass
class Row:
    """What became of a model on a target, with the way to capture it.

    ``compile`` is in seconds, ``ratio`` a call's time over eager's; both of processor time, as others use the machine.
    """

    model: str
    target: str
    outcome: str
    reason: str = ""
    operators: int | None = None
    compile: float | None = None
    ratio: float | None = None
    library_calls: int | None = None


class OutOfTime(Exception):
    """A model took too long on a target."""


def operators(text: str, target: str) -> int:
    """Count the operators in a target's text, without constants, shapes and ends of regions."""
    return sum(name not in _DATA for name in _OPERATOR[target].findall(text))


def judge(got: Any, eager: Any, exact: Any) -> str:
    """Say what is wrong with a result, given eager's in float32 and the model's in float64; nothing if it is right."""
    found, wanted, reference = (pytree.tree_leaves(tensors_of(result)) for result in (got, eager, exact))
    if pytree.tree_structure(tensors_of(got)) != pytree.tree_structure(tensors_of(eager)):
        return "the result is nested in another way"
    for place, (ours, theirs, best) in enumerate(zip(found, wanted, reference, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"output {place} is {ours.dtype}{list(ours.shape)}, eager's {theirs.dtype}{list(theirs.shape)}"
        if not ours.is_floating_point():
            if not torch.equal(ours, theirs):
                return f"output {place}, of {ours.dtype}, has other elements"
            continue
        ours, theirs, best = ours.double(), theirs.double(), best.double()
        finite = theirs.isfinite()
        if not (same_numbers(ours[~finite], theirs[~finite]).all() and ours[finite].isfinite().all()):
            return f"output {place} has other infinities or NaN"
        bound = FACTOR * _greatest((theirs - best)[finite]) + ROOM * _greatest(best[finite])
        if (worst := _greatest((ours - best)[finite])) > bound:
            return f"output {place} is {worst:.1e} from float64, where {bound:.1e} is allowed"
    return ""


def _greatest(numbers: torch.Tensor) -> float:
    return numbers.abs().max().item() if numbers.numel() else 0.0


def trial(name: str, targets: Sequence[str], limit: int) -> Iterator[Row]:
    """Compile a model for each of the targets, run and judge it."""
    example = EVERY[name]
    model, args, kwargs = prepared(example, torch.float32)
    with torch.no_grad():
        eager = model(*args, **kwargs)
        exact = in_float64(example, eager)
    for target in targets:
        row = Row(name, target, "right")
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.alarm(limit)
        try:
            with torch.no_grad():
                start = time.process_time()
                exe = compiled(example, model, args, kwargs, target)
                row.compile = time.process_time() - start
                if isinstance(exe, driver.Executable):
                    row.operators = operators(exe.ir[exe.target], exe.target)
                    row.library_calls = len(exe.library_calls)
                row.reason = judge(exe(*args, **kwargs), eager, exact)
                row.outcome = "wrong" if row.reason else "right"
                row.ratio = ratio(lambda exe=exe: exe(*args, **kwargs), lambda: model(*args, **kwargs))
        except OutOfTime:
            row.outcome, row.reason = "timeout", f"more than {limit} s"
        except Exception as error:
            row.outcome = "refused" if isinstance(error, Unsupported) else "error"
            first = (str(error).splitlines() or [""])[0]
            row.reason = first if isinstance(error, TorchstoneError) else f"{type(error).__name__}: {first}"
        finally:
            signal.alarm(0)
        yield row


def compiled(
    example: Example, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], way: str
) -> Callable[..., Any]:
    """Compile a model for a target, which the name of the way to capture it may follow."""
    target, _, capture = way.partition(":")
    if capture == "dynamo":
        torch._dynamo.reset()
        fn = torch.compile(model, backend="torchstone", options={"target": target}, fullgraph=True)
        fn(*args, **kwargs)  # which compiles
        return fn
    if not capture:
        return driver.compile(model, args, target, kwargs=kwargs)
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = pytree.tree_map(lambda dim: {dim: batch}, example.batch_dims)
    return driver.compile(
        model, args, target, dict(zip(example.keywords, shapes, strict=True)) if kwargs else shapes, kwargs=kwargs
    )


def in_float64(example: Example, eager: Any) -> Any:
    """Return what a model gives in float64; eager's own result where it has ops that take no float64."""
    model, args, kwargs = prepared(example, torch.float64)
    try:
        return model(*args, **kwargs)
    except RuntimeError:
        return eager


def prepared(example: Example, dtype: torch.dtype) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a model in evaluation mode, the same numbers in each dtype, and the arguments of a call."""
    model = example.model(torch.float32).to(dtype).eval()
    args, kwargs = example.args(ROWS, torch.float32), example.kwargs(ROWS, torch.float32)

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return model, *pytree.tree_map_only(torch.Tensor, converted, (args, kwargs))


def ratio(ours: Callable[[], Any], eager: Callable[[], Any], rounds: int = 15) -> float:
    """Return the median time of our call over the median of eager's, taken in turns, one thread each."""
    times: dict[Callable[[], Any], list[float]] = {ours: [], eager: []}
    for _ in range(rounds):
        for call, found in times.items():
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
    return median(times[ours]) / median(times[eager])


def _out_of_time(*_: Any) -> None:
    raise OutOfTime


def in_processes(names: Sequence[str], targets: Sequence[str], limit: int) -> Iterator[Row]:
    """Try each model in a process of its own, and go on with the next target after one that the process died of."""
    for name in names:
        todo = list(targets)
        while todo:
            command = [sys.executable, __file__, "--here", "--format", "json", "--limit", str(limit), "--model", name]
            command += [word for target in todo for word in ("--target", target)]
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            told, complaints = worker.communicate()
            for line in told.splitlines():
                row = Row(**json.loads(line))
                todo.remove(row.target)
                yield row
            if todo and worker.returncode:
                last = (complaints.strip().splitlines() or ["nothing was said"])[-1]
                yield Row(name, todo.pop(0), "crash", f"exit {worker.returncode}: {last}")


def cell(row: Row | None) -> str:
    """Return the outcome; operators, seconds of compiling and the ratio where the model runs."""
    if row is None:
        return ""
    if row.outcome != "right":
        return row.outcome
    calls = f", {row.library_calls} library calls" if row.library_calls else ""
    size = "" if row.operators is None else f"{row.operators}, "
    return f"{size}{row.compile:.1f} s, {row.ratio:.1f}{calls}"


def table(rows: Sequence[Row], targets: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, the reasons after it."""
    yield f"| model | {' | '.join(targets)} |"
    yield "| --- |" + " --- |" * len(targets)
    by_place = {(row.model, row.target): row for row in rows}
    for model in dict.fromkeys(row.model for row in rows):
        yield f"| {model} | " + " | ".join(cell(by_place.get((model, target))) for target in targets) + " |"
    counts = [f"{target} {sum(r.outcome == 'right' for r in rows if r.target == target)}" for target in targets]
    yield ""
    yield f"Right, of {len({row.model for row in rows})}: {', '.join(counts)}."
    yield ""
    for row in rows:
        if row.outcome != "right":
            yield f"- {row.model} on {row.target} is {row.outcome}: `{row.reason}`"
    yield ""
    packages = [p for p in ("torch", "torch-mlir", "timm", "transformers") if find_spec(p.replace("-", "_"))]
    yield f"Versions: {', '.join(f'{package} {version(package)}' for package in packages)}."


def written(page: str, lines: Sequence[str]) -> str:
    """Return a page with these lines between the marks that it has for them."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"the page has no lines {START} and {END}")
    return "\n".join([before + start, *lines, end + after])


def main() -> None:
    """Print the table, or a line of JSON for each model and target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=op_names(), help="repeatable [default: own and chosen]")
    parser.add_argument("--held-out", action="store_true", help="the architectures that the compiler was not made with")
    parser.add_argument("--target", action="append", choices=WAYS, metavar="TARGET[:CAPTURE]", help=WAYS_HELP)
    parser.add_argument("--limit", type=int, default=600, help="seconds for a model on a target [default: 600]")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--page", type=Path, help="put the table into this page, between the marks it has for it")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chosen = list(HELD_OUT) if options.held_out else [*EXAMPLES, *CHOSEN]
    names = options.model or [name for name in chosen if not EVERY[name].package or installed(EVERY[name].package)]
    targets = options.target or list(TARGETS)
    if options.here:
        found = (row for name in names for row in trial(name, targets, options.limit))
    else:
        found = in_processes(names, targets, options.limit)
    rows = []
    for row in found:
        rows.append(row)
        if options.format == "json":
            print(json.dumps(asdict(row)), flush=True)
        else:
            print(f"  {row.model}, {row.target}: {row.outcome} {row.reason}".rstrip(), file=sys.stderr)
    if options.format == "table":
        print("\n".join(table(rows, targets)))
    if options.page:
        options.page.write_text(written(options.page.read_text(), list(table(rows, targets))))
    sys.stdout.flush()
    if options.here:
        os._exit(0)  # what a package left running is not waited for


if __name__ == "__main__":
    main()

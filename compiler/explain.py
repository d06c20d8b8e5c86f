"""The story of a compiled program: what became of each op, line by line of the user's program."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from torchstone.compiler.ir import Frame, Graph, Location, Operation
from torchstone.compiler.library import find_family


def explain(captured: Graph, flat: Graph) -> str:
    """Return, for each line of the program, the ATen ops it made and the ops each of them became.

    ``captured`` is the graph of the frontend, ``flat`` what the target was given; the locations tie them together.
    """
    made: dict[tuple[tuple[Frame, ...], str], list[Operation]] = {}
    for op in flat.ops:
        made.setdefault(_origin(op), []).append(op)
    lines: list[str] = []
    for frames, ops in groupby(captured.ops, key=lambda op: op.location.frames):
        lines.append(_place(frames))
        for key, same in _runs(ops):
            times = f"  ({len(same)} times)" if len(same) > 1 else ""
            lines.append(f"  {same[0].name}: {_signature(same[0])}{times}")
            lines.extend(f"    {text}" for text in _became(made.get(key, ())))
    return "\n".join([*lines, ""])


def _origin(op: Operation) -> tuple[tuple[Frame, ...], str]:
    """The line and the ATen op that an op stems from: its first note, or itself when it was kept."""
    return op.location.frames, op.location.notes[0] if op.location.notes else op.name


def _runs(ops: Iterable[Operation]) -> Iterator[tuple[tuple[tuple[Frame, ...], str], list[Operation]]]:
    grouped: dict[tuple[tuple[Frame, ...], str], list[Operation]] = {}
    for op in ops:
        grouped.setdefault((op.location.frames, op.name), []).append(op)
    yield from grouped.items()


def _place(frames: tuple[Frame, ...]) -> str:
    if not frames:
        return "(no line of the program)"
    frame = frames[0]
    text = linecache.getline(frame.file, frame.line).strip()
    return f"{frame.file}:{frame.line} in {frame.function}" + (f"    {text}" if text else "")


def _signature(op: Operation) -> str:
    return f"{', '.join(str(v.type) for v in op.values)} -> {', '.join(str(r.type) for r in op.results)}"


def _became(ops: Iterable[Operation]) -> Iterator[str]:
    """One text for each way the ops came about: through which ops, and which primitives how often."""
    ways: dict[Location, list[Operation]] = {}
    for op in ops:
        ways.setdefault(Location(notes=op.location.notes[1:]), []).append(op)
    if not ways:
        yield "is computed elsewhere or not needed"
    for location, made in ways.items():
        calls = [op for op in made if not op.name.startswith("flat.")]
        counts = Counter(op.name for op in made if op.name.startswith("flat."))
        through = f"through {' and '.join(location.notes)}: " if location.notes else ""
        if counts:
            yield through + ", ".join(f"{name} x{n}" if n > 1 else name for name, n in counts.items())
        for op in calls:
            family = find_family(op)
            yield f"{through}{op.name} as it is" + (f", a call into LibTorch ({family.reason})" if family else "")

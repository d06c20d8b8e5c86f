"""The page "What the oracle waives, and why", in Markdown, from the tolerances and the traits of ops.

python -m torchstone.conformance.oracle.waivers > docs/waivers.md
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
from collections.abc import Iterator

from torchstone.conformance.oracle import tolerances
from torchstone.conformance.oracle.op_traits.table import SECTIONS
from torchstone.conformance.oracle.op_traits.trait import Names, Trait
from torchstone.conformance.oracle.tolerances import COMPONENT, DEPARTURES, TABLE
from torchstone.conformance.program.literals import dtype_name

COMMAND = "python -m torchstone.conformance.oracle.waivers > docs/waivers.md"

_INTRODUCTION = f"""\
# What the oracle waives, and why

This page is generated from `conformance/oracle/tolerances.py` and `conformance/oracle/op_traits/`. Write it anew with
`{COMMAND}`.

The oracle compares a backend with eager PyTorch. Two correct compilers may differ: they round in another order, choose
another of several right answers, or keep a NaN that eager loses. This page lists all that the oracle forgives for such
reasons, and what it decides by the name of an op. [Verdicts](verdicts.md) explains the rules with examples.
"""

_TOLERANCES = """\
## Tolerances

A number passes if it is within so many ULPs (units in the last place) of eager's number. If it is not, it is compared
with a run of the program in float64: its error may be so many times eager's own error, beside the ULPs. The floor is
an absolute distance that always passes. Integers, booleans and strings have to be equal.
"""

_RATIOS = """\
## Ratios and thresholds

The rules use these numbers. Each has one meaning and one unit.
"""

_EXEMPTIONS = """\
## Exemptions

Each of these gives room to a backend, for the ops that are named.
"""

_OTHERS = """\
## Other traits

These give no room. The oracle holds a backend to more because of them, or the fuzzer reads them.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION, _TOLERANCES, *_tolerance_tables(), _RATIOS, *_ratios()]
    for heading, waives in ((_EXEMPTIONS, True), (_OTHERS, False)):
        parts.append(heading)
        for title, module in SECTIONS:
            traits = [value for value in vars(module).values() if isinstance(value, Trait) and value.waives is waives]
            if traits:
                parts += [f"### {title}\n", *map(_trait, traits)]
    return "\n".join(parts)


def _tolerance_tables() -> Iterator[str]:
    rows = ["| dtype | ULPs | times eager's error | floor |", "| --- | --- | --- | --- |"]
    parts = {dtype: [whole for whole, part in COMPONENT.items() if part == dtype] for dtype in TABLE}
    for dtype, row in TABLE.items():
        names = ", ".join(f"`{dtype_name(one)}`" for one in (dtype, *parts[dtype]))
        rows.append(f"| {names} | {row.ulps:g} | {row.factor:g} | {_power(row.tiny)} |")
    yield "\n".join(rows) + "\n"
    yield "Errors of complex numbers are distances in the plane, in ULPs of the modulus.\n"
    yield "### Departures\n"
    for departure in DEPARTURES:
        yield (
            f"- `{dtype_name(departure.dtype)}`: {departure.ulps:g} ULPs for {_ops(departure.trait)}. "
            f"{departure.trait.reason}\n"
        )


def _number(value: float) -> str:
    return _power(value) if math.frexp(value)[0] == 0.5 and value < 0.01 else f"{value:.10g}"


def _power(value: float) -> str:
    return f"2^{round(math.log2(value))}" if value else "0"


def _ratios() -> Iterator[str]:
    rows = ["| name | value | unit and meaning |", "| --- | --- | --- |"]
    for name, text in _constants(inspect.getsource(tolerances)):
        value = getattr(tolerances, name)
        shown = ", ".join(map(_number, value)) if isinstance(value, tuple) else _number(value)
        rows.append(f"| `{name}` | {shown} | {' '.join(text.split()).replace('``', '`').replace('|', '/')} |")
    yield "\n".join(rows) + "\n"


def _constants(source: str) -> Iterator[tuple[str, str]]:
    """The public numbers of a module with the texts below them."""
    body = ast.parse(source).body
    for node, below in itertools.pairwise(body):
        if not isinstance(node, ast.Assign) or not isinstance(below, ast.Expr):
            continue
        name = ast.unparse(node.targets[0])
        if isinstance(below.value, ast.Constant) and not name.startswith("_"):
            yield name, str(below.value.value)


def _trait(trait: Trait) -> str:
    lines = [f"**{trait.title}.** {trait.reason}", "", f"Effect: {trait.effect}", ""]
    detailed = {op: detail for op, detail in trait.ops.items() if detail}
    plain = [op for op in trait.ops if op not in detailed]
    kind = "Operators of ATen" if trait.names is Names.ATEN else "Functions"
    if plain:
        lines += [f"{kind}: {', '.join(f'`{op}`' for op in plain)}.", ""]
    if detailed:
        lines += [
            f"| {kind.lower()} | |",
            "| --- | --- |",
            *(f"| `{op}` | {text} |" for op, text in detailed.items()),
            "",
        ]
    return "\n".join(lines)


def _ops(trait: Trait) -> str:
    return ", ".join(f"`{op}`" for op in trait.ops)


if __name__ == "__main__":
    print(page(), end="")

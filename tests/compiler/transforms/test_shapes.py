"""The shape library: what PyTorch's eager kernels give is what it says, and what they refuse it refuses."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import pytest
import torch

from torchstone.compiler.capture.trace import frontend as dispatch
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, VerifyError
from torchstone.compiler.driver import compile as build
from torchstone.compiler.ir import Operation, parse_graph
from torchstone.compiler.ir.dims import Expr
from torchstone.compiler.transforms.graph_types import check_types, refine, types_match
from torchstone.compiler.transforms.shapes import FakeSizes, result_types
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import opinfo
from torchstone.conformance.sources.sampling import seeded

# One sample of every third op; `TORCHSTONE_SAMPLES=1000` is the whole database.
SAMPLES = int(os.environ.get("TORCHSTONE_SAMPLES", "0"))


def graph(args: str, body: str, output: str = "%0"):
    return parse_graph(f"graph @f({args}) {{\n{body}\nreturn {output}\n}}")


def test_sizes_follow_from_the_arguments() -> None:
    source = graph(
        "%x: f32[?, ?], %w: f32[?, ?], %b: f32[?]",
        """%0: f32[?, ?] = aten.mm.default(%x, %w)
           %1: f32[?, ?] = aten.add.Tensor(%0, %b, 1)
           %2: f32[?] = aten.sum.dim_IntList(%1, [1], false, none)""",
        "%2",
    )
    assert str(refine(source).graph) == str(
        graph(
            "%x: f32[d0, d2], %w: f32[d2, d3], %b: f32[d3]",
            """%0: f32[d0, d3] = aten.mm.default(%x, %w)
               %1: f32[d0, d3] = aten.add.Tensor(%0, %b, 1)
               %2: f32[d0] = aten.sum.dim_IntList(%1, [1], false, none)""",
            "%2",
        )
    )


def test_a_known_size_spreads() -> None:
    source = graph("%x: f32[?, 3], %y: f32[4, ?]", "%0: f32[?, ?] = aten.mul.Tensor(%x, %y)")
    assert "%0: f32[4, 3]" in str(refine(source).graph)


def test_primitives_bring_their_own_shape_function() -> None:
    source = graph("%x: f32[?, 5]", '%0: f32[?] = flat.reduce(%x) {kind="sum", dims=[1]}')
    assert "%0: f32[d0] = flat.reduce" in str(refine(source).graph)


def test_operands_that_cannot_fit_are_refused() -> None:
    source = graph("%x: f32[?, 3], %y: f32[4, ?]", "%0: f32[?, ?] = aten.mm.default(%x, %y)")
    with pytest.raises(VerifyError, match=r"aten\.mm\.default.*3.*4"):
        refine(source)


@pytest.mark.parametrize("said", ["f32[4]", "i64[?, ?]", "f32[5, ?]"])
def test_a_type_that_the_op_does_not_give_is_refused(said: str) -> None:
    with pytest.raises(VerifyError, match=r"aten\.exp\.default gives f32\[4, d0\]"):
        refine(graph("%x: f32[4, ?]", f"%0: {said} = aten.exp.default(%x)"))


def test_types_are_recomputed() -> None:
    check_types(graph("%x: f32[4, s0]", "%0: f32[s0, 4] = aten.t.default(%x)"))
    with pytest.raises(VerifyError, match=r"gives f32\[s0, 4\], the graph says f32\[4, s0\]"):
        check_types(graph("%x: f32[4, s0]", "%0: f32[4, s0] = aten.t.default(%x)"))


def test_a_size_that_depends_on_data_is_a_symbol_of_its_own() -> None:
    source = graph("%x: bool[4]", "%0: i64[?, 1] = aten.nonzero.default(%x)")
    assert "%0: i64[u0, 1]" in str(refine(source).graph)


@pytest.mark.parametrize("dim", ["none", "0", "-1"])
def test_counts_nobody_asked_for_have_the_size_that_eager_gives_them(dim: str) -> None:
    x = torch.tensor([1.0, 1.0, 2.0])
    given = torch.ops.aten.unique_consecutive.default(x, False, False, None if dim == "none" else int(dim))
    line = f"%0: f32[?], %1: i64[?], %2: i64[?] = aten.unique_consecutive.default(%x, false, false, {dim})"
    _, inverse, counts = (r.tensor for r in refine(graph("%x: f32[3]", line)).graph.ops[0].results)
    assert inverse.shape == given[1].shape
    assert counts.shape == (0,) if given[2].shape == (0,) else isinstance(counts.shape[0], Expr)


def chosen() -> list[str]:
    return opinfo.op_names() if SAMPLES else opinfo.op_names()[::3]


def captured(limit: int) -> Iterator[tuple[str, Operation]]:
    """Yield the ops that samples of the whole op database come to, with the types that eager gave their results."""
    for entry in opinfo.iterate(chosen(), ["float32"], limit):
        if not isinstance(entry, Case):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ops = dispatch.capture(entry.program, entry.fresh_args()).graph.ops
        except TorchstoneError:
            continue
        yield from ((entry.id, op) for op in ops)


def test_agrees_with_eager_on_the_op_database() -> None:
    agree, unknown, wrong, sizes = 0, 0, [], FakeSizes({})
    for case, op in captured(SAMPLES or 1):
        try:
            types = result_types(op, sizes)
        except Unsupported:
            unknown += 1
            continue
        except VerifyError as error:
            wrong.append(f"{case}: {error.message}")
            continue
        if types_match(op, types):
            agree += 1
        else:
            wrong.append(f"{case}: {op}: {types}")
    assert not wrong, "\n".join(wrong[:20])
    assert agree > 300 and unknown < agree / 20


def refused() -> list[tuple[str, object, tuple, dict, type]]:
    """The calls of the op database that eager refuses, each with the kind of its exception."""
    calls = []
    for name in chosen():
        info = opinfo.info_of(name)
        if info.error_inputs_func is None:
            continue
        with seeded(name):
            for error in info.error_inputs("cpu"):
                sample = error.sample_input
                args, kwargs = (sample.input, *sample.args), sample.kwargs
                try:
                    info.op(*args, **kwargs)
                except Exception as problem:
                    calls.append((name, info.op, args, kwargs, type(problem)))
    return calls


def test_what_eager_refuses_is_refused() -> None:
    accepted, count = [], 0
    for name, op, args, kwargs, kind in refused():
        count += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                build(lambda *xs, op=op, kwargs=kwargs: op(*xs, **kwargs), args, target="evaluator")
        except (kind, TorchstoneError):
            continue
        accepted.append(f"{name}{tuple((torch.is_tensor(a) and a.shape) or a for a in args)}")
    assert not accepted, "\n".join(accepted)
    assert count > 150

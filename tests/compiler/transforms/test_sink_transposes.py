"""Transposes move behind their users, meet and cancel; composites with channels get them last between transposes."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.ir.parser import parse_graph
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.channels_last import channels_last
from torchstone.compiler.transforms.sink_transposes import sink_transposes

X = "%x: f32[2, 3, 4, 5]"
MOVED = "  %0: f32[2, 4, 5, 3] = flat.transpose(%x) {permutation=[0, 2, 3, 1]}\n"

CASES = {
    "two that cancel": (
        X,
        MOVED + "  %1: f32[2, 3, 4, 5] = flat.transpose(%0) {permutation=[0, 3, 1, 2]}\n  return %1",
        "  return %x",
    ),
    "two that make another one": (
        X,
        MOVED + "  %1: f32[4, 2, 5, 3] = flat.transpose(%0) {permutation=[1, 0, 2, 3]}\n  return %1",
        "  %0: f32[4, 2, 5, 3] = flat.transpose(%x) {permutation=[2, 0, 3, 1]}\n  return %0",
    ),
    "one of a size of run time is no reshape": (
        "%x: f32[1, s0]",
        "  %0: f32[s0, 1] = flat.transpose(%x) {permutation=[1, 0]}\n  return %0",
        "  %0: f32[s0, 1] = flat.transpose(%x) {permutation=[1, 0]}\n  return %0",
    ),
    "elementwise ops and a vector in between": (
        f"{X}, %b: f32[3]",
        MOVED + "  %1: f32[2, 4, 5, 3] = flat.broadcast(%b) {shape=[2, 4, 5, 3], dims=[3]}\n"
        "  %2: f32[2, 4, 5, 3] = flat.add(%0, %1)\n"
        "  %3: f32[2, 4, 5, 3] = flat.clamp(%2) {low=0.0, high=inf}\n"
        "  %4: f32[2, 3, 4, 5] = flat.transpose(%3) {permutation=[0, 3, 1, 2]}\n  return %4",
        "  %0: f32[2, 3, 4, 5] = flat.broadcast(%b) {shape=[2, 3, 4, 5], dims=[1]}\n"
        "  %1: f32[2, 3, 4, 5] = flat.add(%x, %0)\n"
        "  %2: f32[2, 3, 4, 5] = flat.clamp(%1) {low=0.0, high=inf}\n  return %2",
    ),
    "another tensor in its own order stays before the transpose": (
        f"{X}, %y: f32[2, 4, 5, 3]",
        MOVED + "  %1: f32[2, 4, 5, 3] = flat.add(%0, %y)\n  return %1",
        MOVED + "  %1: f32[2, 4, 5, 3] = flat.add(%0, %y)\n  return %1",
    ),
    "a reduction names other dims": (
        X,
        MOVED + '  %1: f32[2, 3] = flat.reduce(%0) {kind="sum", dims=[1, 2]}\n  return %1',
        '  %0: f32[2, 3] = flat.reduce(%x) {kind="sum", dims=[2, 3]}\n  return %0',
    ),
    "a reduction that leaves dims in another order": (
        X,
        MOVED + '  %1: f32[5, 3] = flat.reduce(%0) {kind="max", dims=[0, 1]}\n  return %1',
        '  %0: f32[3, 5] = flat.reduce(%x) {kind="max", dims=[0, 2]}\n'
        "  %1: f32[5, 3] = flat.transpose(%0) {permutation=[1, 0]}\n  return %1",
    ),
    "concat, slice, pad and reverse": (
        f"{X}, %z: f32[]",
        MOVED + "  %1: f32[2, 4, 5, 6] = flat.concat(%0, %0) {dim=3}\n"
        "  %2: f32[2, 4, 2, 6] = flat.slice(%1) {start=[0, 0, 1, 0], limit=[2, 4, 5, 6], stride=[1, 1, 2, 1]}\n"
        "  %3: f32[2, 5, 2, 6] = flat.pad(%2, %z) {low=[0, 1, 0, 0], high=[0, 0, 0, 0]}\n"
        "  %4: f32[2, 5, 2, 6] = flat.reverse(%3) {dims=[1, 3]}\n"
        "  %5: f32[2, 6, 5, 2] = flat.transpose(%4) {permutation=[0, 3, 1, 2]}\n  return %5",
        "  %0: f32[2, 6, 4, 5] = flat.concat(%x, %x) {dim=1}\n"
        "  %1: f32[2, 6, 4, 2] = flat.slice(%0) {start=[0, 0, 0, 1], limit=[2, 6, 4, 5], stride=[1, 1, 1, 2]}\n"
        "  %2: f32[2, 6, 5, 2] = flat.pad(%1, %z) {low=[0, 0, 1, 0], high=[0, 0, 0, 0]}\n"
        "  %3: f32[2, 6, 5, 2] = flat.reverse(%2) {dims=[1, 2]}\n  return %3",
    ),
    "one that moves dims of size 1 alone is a reshape, and reshapes join": (
        "%x: f32[2, 1, 1, 3]",
        "  %0: f32[2, 3, 1, 1] = flat.transpose(%x) {permutation=[0, 3, 1, 2]}\n"
        "  %1: f32[2, 3] = flat.reshape(%0) {shape=[2, 3]}\n  return %1",
        "  %0: f32[2, 3] = flat.reshape(%x) {shape=[2, 3]}\n  return %0",
    ),
    "a size of 1 repeated behind the transpose": (
        "%x: f32[2, 3, 4, 1]",
        "  %0: f32[2, 4, 1, 3] = flat.transpose(%x) {permutation=[0, 2, 3, 1]}\n"
        "  %1: f32[2, 4, 5, 3] = flat.broadcast(%0) {shape=[2, 4, 5, 3], dims=[0, 1, 2, 3]}\n"
        "  %2: f32[2, 3, 4, 5] = flat.transpose(%1) {permutation=[0, 3, 1, 2]}\n  return %2",
        "  %0: f32[2, 3, 4, 5] = flat.broadcast(%x) {shape=[2, 3, 4, 5], dims=[0, 1, 2, 3]}\n  return %0",
    ),
    "an output is what it was": (X, MOVED + "  return %0, %x", MOVED + "  return %0, %x"),
}


@pytest.mark.parametrize(("args", "before", "after"), CASES.values(), ids=CASES)
def test_transposes_sink(args: str, before: str, after: str) -> None:
    graph = parse_graph(f"graph @f({args}) {{\n{before}\n}}\n")
    out = sink_transposes(graph)
    assert str(out) == f"graph @f({args}) {{\n{after}\n}}\n"
    tensors = [
        torch.randn([n if isinstance(n, int) else 3 for n in a.shape], generator=torch.Generator().manual_seed(i))
        for i, a in enumerate(graph.args)
    ]
    for got, want in zip(evaluate_graph(out, tensors), evaluate_graph(graph, tensors), strict=True):
        assert torch.equal(got, want)


def test_channels_get_last() -> None:
    window = "stride=[1, 2], low=[0, 1], high=[1, 0], dilation=[1, 1], groups=1"
    head = "graph @f(%x: f32[1, 2, 4, 6], %w: f32[3, 2, 2, 2], %b: f32[3]) {"
    graph = parse_graph(
        f'{head}\n  %0: f32[1, 3, 4, 3] = flat.convolution(%x, %w, %b) {{{window}, channels="first"}}\n'
        "  return %0\n}\n"
    )
    assert str(channels_last(graph)) == "\n".join(
        [
            head,
            "  %0: f32[1, 4, 6, 2] = flat.transpose(%x) {permutation=[0, 2, 3, 1]}",
            "  %1: f32[3, 2, 2, 2] = flat.transpose(%w) {permutation=[0, 2, 3, 1]}",
            f'  %2: f32[1, 4, 3, 3] = flat.convolution(%0, %1, %b) {{{window}, channels="last"}}',
            "  %3: f32[1, 3, 4, 3] = flat.transpose(%2) {permutation=[0, 3, 1, 2]}",
            "  return %3",
            "}",
            "",
        ]
    )

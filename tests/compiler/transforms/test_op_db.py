"""PyTorch's op database through the expansions: every op listed in op_db.txt agrees with eager on its samples."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.compiler.transforms.conftest import assert_same
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile
from torchstone.conformance.sources.sampling import seeded

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

# One op a line, "<name>" or "<name>.<variant>": those whose float32 samples all pass.
LISTED = Path(__file__).with_name("op_db.txt").read_text().split()
OPS = {f"{op.name}.{op.variant_test_name}".removesuffix("."): op for op in op_db}
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SAMPLES = 2
# Sums of complex products cancel: an ULP of their parts is many of theirs.
SLACK = {torch.complex64: 64.0, torch.float32: 4.0}


def _program(op: Any, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    tensors = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    others = [None if i in tensors else leaf for i, leaf in enumerate(leaves)]  # the program holds no argument
    places = list(tensors)

    def program(*given: torch.Tensor) -> Any:
        full = list(others)
        for place, tensor in zip(places, given, strict=True):
            full[place] = tensor
        args, kwargs = pytree.tree_unflatten(full, spec)
        return op(*args, **kwargs)

    return program, list(tensors.values())


def _agrees_rounded_once(program: Callable[..., Any], tensors: list[torch.Tensor]) -> None:
    """Compare with eager's float32, rounded: eager's kernels of 16 bits round each product on some processors."""

    def cast(tree: Any, source: torch.dtype, target: torch.dtype) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda t: t.to(target) if t.dtype is source else t, tree)

    half, single = torch.bfloat16, torch.float32
    got = compile(program, tuple(tensors), target="evaluator", alias_results=False)(*tensors)
    assert_same(got, cast(program(*cast(tensors, half, single)), single, half))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LISTED)
def test_samples(name: str, agrees: Callable[..., None]) -> None:
    op = OPS[name]
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        with seeded(name):
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES))
        for sample in samples:
            program, tensors = _program(op, sample)
            try:
                program(*(t.clone() for t in tensors))
            except (RuntimeError, NotImplementedError):
                continue  # no kernel for this dtype after all
            try:
                agrees(program, *tensors, slack=SLACK.get(dtype, 1.0))
            except AssertionError:
                if dtype is not torch.bfloat16:
                    raise
                _agrees_rounded_once(program, tensors)
            except Unsupported:
                if dtype == torch.float32:
                    raise

"""PyTorch's op database through the expansions: every op agrees with eager on its samples, or is refused as told here.

The database itself is the list: an op that it gains is tried, and one that is refused, or no more, has to be told here.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
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

OPS = {f"{op.name}.{op.variant_test_name}".removesuffix("."): op for op in op_db}
# What the database has for other devices: no dtype that is tried here has a kernel on the CPU.
ELSEWHERE = {
    "jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref",
    "jiterator_2inputs_2outputs", "torch._scaled_mm", "torch._scaled_mm_v2",
    "torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward",
    "nn.functional.batch_norm.without_cudnn",
}  # fmt: skip
SEED = "the program sets the state of the random generator"  # the database seeds what draws, so that it can be compared
REFUSED = {
    "as_strided.partial_views": "of memory that is not the tensor's own",
    "nn.functional.linear_cross_entropy.chunked": "has no expansion to FlatIR",
    "nn.functional.linear_cross_entropy.chunked_none": "has no expansion to FlatIR",
    "sparse.mm.reduce": "a torch.sparse_csr tensor",
    "sparse.sampled_addmm": "a torch.sparse_csr tensor",
    "to_sparse": "a torch.sparse_coo tensor",
    **dict.fromkeys(
        [
            "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place",
            "normal.number_mean", "pca_lowrank", "rand_like", "randint", "randint_like", "randn", "randn_like",
            "svd_lowrank", "uniform", "nn.functional.feature_alpha_dropout.with_train",
            "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
            "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
        ],
        SEED,
    ),
}  # fmt: skip
# Those of which a sample draws nothing, and has to agree.
REFUSED_IN_PART = {"nn.functional.feature_alpha_dropout.with_train", "nn.functional.multi_head_attention_forward"}


def _all(out: Any) -> Any:
    return out


def _values(out: Any) -> Any:
    return out[0]


# What of a result has to be eager's, where that is not all: memory that nobody wrote holds anything, and which of two
# equal elements is chosen is free (test_ordering.py says that the indices point at the values).
COMPARED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ["empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "argsort"],
        torch.zeros_like,
    ),
    **dict.fromkeys(["sort", "topk", "kthvalue"], _values),
}
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SAMPLES = 2
# Sums of complex products cancel: an ULP of their parts is many of theirs.
SLACK = {torch.complex64: 8.0, torch.float32: 4.0}


def _program(name: str, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    op, compared = OPS[name], COMPARED.get(name, _all)
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
        return compared(op(*args, **kwargs))

    return program, list(tensors.values())


def _agrees_rounded_once(program: Callable[..., Any], tensors: list[torch.Tensor]) -> None:
    """Compare with eager's float32, rounded: eager's kernels of 16 bits round each product on some processors."""

    def cast(tree: Any, source: torch.dtype, target: torch.dtype) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda t: t.to(target) if t.dtype is source else t, tree)

    half, single = torch.bfloat16, torch.float32
    got = compile(program, tuple(tensors), target="evaluator", alias_results=False)(*tensors)
    assert_same(got, cast(program(*cast(tensors, half, single)), single, half))


def _samples(
    name: str, dtype: torch.dtype, count: int = SAMPLES
) -> list[tuple[Callable[..., Any], list[torch.Tensor]]]:
    with seeded(name):
        samples = list(itertools.islice(OPS[name].sample_inputs("cpu", dtype), count))
    assert samples, f"the database has no sample of {name} for {dtype}"
    return [_program(name, sample) for sample in samples]


@pytest.mark.few(14)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["some", "every"])
@pytest.mark.parametrize("name", [name for name in OPS if name not in REFUSED.keys() | ELSEWHERE])
def test_samples(name: str, every: bool, agrees: Callable[..., None]) -> None:
    """Every dtype is asked the first sample. Another has other sizes or arguments, for every dtype the same ones:
    the first dtype is asked that, too, and the long tests ask all."""
    tried = [dtype for dtype in DTYPES if dtype in OPS[name].dtypes]
    assert tried
    for dtype in tried:
        for program, tensors in _samples(name, dtype, SAMPLES if every or dtype is tried[0] else 1):
            try:
                agrees(program, *tensors, slack=SLACK.get(dtype, 1.0))
            except AssertionError:
                if dtype is not torch.bfloat16:
                    raise
                _agrees_rounded_once(program, tensors)


@pytest.mark.few(10)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, agrees: Callable[..., None]) -> None:
    refused = 0
    for dtype in DTYPES:
        for program, tensors in _samples(name, dtype) if dtype in OPS[name].dtypes else ():
            try:
                agrees(program, *tensors)
            except Unsupported as error:
                assert REFUSED[name] in error.message
                refused += 1
            else:
                assert name in REFUSED_IN_PART
    assert refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_other_devices_have_is_not_here(name: str) -> None:
    for dtype in DTYPES:
        for program, tensors in _samples(name, dtype) if dtype in OPS[name].dtypes else ():
            with pytest.raises(AssertionError, match="only supported on CUDA"):
                program(*tensors)


def test_only_ops_of_the_database_are_told_of() -> None:
    assert REFUSED.keys() | COMPARED.keys() | ELSEWHERE <= OPS.keys()
    assert REFUSED.keys() >= REFUSED_IN_PART and not REFUSED.keys() & ELSEWHERE

"""For each control a few programs that it computes otherwise than eager, whatever processor eager runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref


def case(*calls: tuple[Any, ...], inputs: tuple[Tensor, ...], **named: Any) -> Case:
    """A case of calls, each the target and its arguments: ``x0`` is an input, ``r0`` the result of the first call.

    Keyword arguments are the last call's.
    """
    names = tuple(f"x{i}" for i in range(len(inputs)))

    def argument(value: Any) -> Any:
        return Ref(value) if isinstance(value, str) and value[0] in "xr" and value[1:].isdigit() else value

    steps = [
        Call(target, tuple(map(argument, rest)), named if k == len(calls) - 1 else {}, f"r{k}")
        for k, (target, *rest) in enumerate(calls)
    ]
    program = Program(names, tuple(steps), Ref(steps[-1].result))
    return Case(program, dict(zip(names, inputs, strict=True)), "guide", "example", "float32")


def normal(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def unary(*names: str, scale: float = 2.0, shift: float = 0.0, dtypes: Any = (torch.float32, torch.bfloat16)) -> Any:
    return [case((name, "x0"), inputs=((normal(4000) * scale + shift).to(d),)) for name in names for d in dtypes]


def rows(target: str, *rest: Any, dtypes: Any = (torch.float32, torch.float64, torch.bfloat16), **named: Any) -> Any:
    return [case((target, "x0", *rest), inputs=(normal(32, 101, dtype=d),), **named) for d in dtypes]


def product(dtype: torch.dtype = torch.float32) -> Case:
    return case(("torch.matmul", "x0", "x1"), inputs=(normal(16, 75, dtype=dtype), normal(75, 9, dtype=dtype, seed=1)))


def sums() -> list[Case]:
    return [*rows("torch.sum", 1), *rows("torch.mean", 1), product(), product(torch.float16), product(torch.complex64)]


def convolved(kind: str, x: Tensor, weight: Tensor, *rest: Any) -> Case:
    return case((f"torch.nn.functional.{kind}", "x0", "x1", None, *rest), inputs=(x, weight))


def convolutions() -> list[Case]:
    image, line = normal(2, 4, 9, 8), normal(2, 4, 31)
    return [
        convolved("conv2d", image, normal(6, 2, 3, 3, seed=1), 1, 1, 1, 2),
        convolved("conv1d", line, normal(6, 4, 3, seed=1)),
        convolved("conv1d", line, normal(6, 4, 3, seed=1), 2, 2, 2),
    ]


def of_halves() -> Tensor:
    """A matrix of full rank with many elements of the same size."""
    return torch.tensor([[1.0, -1, 0.5, 1], [-1, 0.5, 1, 1], [1, 1, -0.5, 0.5], [0.5, 1, 1, -1]])


def symmetric() -> Tensor:
    matrix = normal(5, 5)
    return matrix + matrix.mT


SPREAD = torch.linspace(-3, 3, 4000)
SUBNORMAL = (torch.full((3,), 1e-30), torch.tensor([1e-10, -1e-10, 1.0]))
BANKS = torch.tensor([[2.0, 1.0, 2.0, 1.0, 2.0], [0.0, 0.0, 0.0, 1.0, 1.0]])

EXAMPLES: dict[str, Callable[[], list[Case]]] = {
    **dict.fromkeys(("sequential_sums", "reversed_sums", "pairwise_sums", "blocked_sums", "shuffled_sums"), sums),
    "compensated_sums": sums,
    "fused_multiply_adds": lambda: [
        case(("torch.addcmul", "x0", "x1", "x2"), inputs=(normal(4000), normal(4000, seed=1), normal(4000, seed=2))),
        case(
            ("torch.mul", "x0", "x1"), ("torch.add", "r0", "x2"), inputs=tuple(normal(4000, seed=k) for k in range(3))
        ),
        product(),
        product(torch.float64),
    ],
    "float64_rounded_once": lambda: [
        *unary("torch.exp", "torch.sin"),
        *rows("torch.softmax", 1, dtypes=(torch.float32,)),
    ],
    "wide_numbers": lambda: [case(("torch.mul", "x0", 0.1), inputs=(SPREAD,))],
    "flushed_subnormals": lambda: [case(("torch.mul", "x0", "x1"), inputs=SUBNORMAL)],
    "exp_by_exp2": lambda: unary("torch.exp", "torch.sigmoid", "torch.cosh", dtypes=(torch.float32, torch.float64)),
    "functions_by_log1p": lambda: [
        *unary("torch.tanh", "torch.sinh", "torch.asinh", "torch.nn.functional.softplus"),
        *unary("torch.atanh", scale=0.2),
        *unary("torch.acosh", shift=12.0),
    ],
    "functions_by_log": lambda: [
        *unary("torch.expm1", scale=0.3),
        *unary("torch.log1p", scale=0.1),
        *unary("torch.log2", "torch.log10", shift=12.0),
    ],
    "division_by_reciprocal": lambda: [case(("torch.div", "x0", "x1"), inputs=(normal(4000), normal(4000, seed=1)))],
    "pow_by_logarithm": lambda: [case(("torch.pow", "x0", "x1"), inputs=(normal(4000).abs(), normal(4000, seed=1)))],
    "numpy_kernels": lambda: [*unary("torch.exp", "torch.tan", "torch.asinh"), *rows("torch.sum", 1), product()],
    "scipy_functions": lambda: unary(
        "torch.lgamma", "torch.special.erfcx", "torch.special.i1", shift=3.0, dtypes=(torch.float32,)
    ),
    "scipy_transforms": lambda: [
        case(("torch.fft.fft", "x0"), inputs=(normal(8, 30),)),
        case(("torch.fft.irfft", "x0"), inputs=(torch.complex(normal(8, 30), normal(8, 30, seed=1)),)),
    ],
    "welford_variance": lambda: [*rows("torch.var", 1), *rows("torch.nn.functional.layer_norm", [101])],
    "two_pass_variance": lambda: [*rows("torch.std", 1), *rows("torch.nn.functional.layer_norm", [101])],
    "scaled_norm": lambda: rows("torch.linalg.vector_norm", 2, 1),
    "online_softmax": lambda: [*rows("torch.softmax", 1), *rows("torch.log_softmax", 1)],
    "logsumexp_in_pairs": lambda: rows("torch.logsumexp", 1),
    "parallel_scans": lambda: [*rows("torch.cumsum", 1), *rows("torch.cumprod", 1), *rows("torch.logcumsumexp", 1)],
    "contractions_split_in_two": lambda: [product(), product(torch.float64), product(torch.bfloat16)],
    "strassen": lambda: [product(), product(torch.float16)],
    "im2col_convolution": convolutions,
    "winograd_convolution": lambda: convolutions()[:2],
    "fourier_convolution": convolutions,
    "last_pivots": lambda: [
        case(("torch.linalg.lu", "x0"), inputs=(of_halves(),)),
        case(("torch.linalg.lu_factor", "x0"), inputs=(of_halves().expand(3, 4, 4).clone(),)),
    ],
    "reversed_eigenvalues": lambda: [
        case((target, "x0"), inputs=(normal(2, 5, 5),)) for target in ("torch.linalg.eig", "torch.linalg.eigvals")
    ],
    "inverse_by_reflections": lambda: [
        case(("torch.linalg.inv", "x0"), inputs=(normal(2, 5, 5, dtype=dtype),))
        for dtype in (torch.float32, torch.complex64)
    ],
    "transposed_pseudoinverse": lambda: [case(("torch.linalg.pinv", "x0"), inputs=(normal(6, 4),))],
    "other_signs": lambda: [
        case(("torch.linalg.eigh", "x0"), inputs=(symmetric(),)),
        case(("torch.linalg.svd", "x0"), inputs=(normal(5, 3),)),
        case(("torch.linalg.qr", "x0"), inputs=(normal(5, 3, dtype=torch.complex64),)),
    ],
    "other_ties": lambda: [
        case((target, "x0", *rest), inputs=(BANKS,))
        for target, *rest in (
            ("torch.sort",),
            ("torch.topk", 3),
            ("torch.kthvalue", 2),
            ("torch.median", 1),
            ("torch.mode", 1),
        )
    ],
    "core_decompositions": lambda: [case(("torch.mv", "x0", "x1"), inputs=(normal(64, 101), normal(101, seed=1)))],
    "references": lambda: [
        case(("torch.mv", "x0", "x1"), inputs=(normal(64, 101), normal(101, seed=1))),
        case(  # the quotient leaves the range
            ("torch.div", "x0", "x1"),
            ("torch.mv", "x2", "x3"),
            ("torch.floor_divide", "x0", "x1"),
            inputs=(torch.full((64,), 3e38), torch.tensor(-6e-39), normal(64, 101), normal(101, seed=1)),
        ),
    ],
    **dict.fromkeys(
        ("column_major_results", "channels_last_results", "padded_results"),
        lambda: [case(("torch.exp", "x0"), inputs=(normal(2, 3, 4, 5),))],
    ),
    "row_major_inputs": lambda: [
        case(("torch.exp", "x0"), inputs=(normal(4, 5).mT,)),
        case(("torch.Tensor.exp_", "x0"), inputs=(normal(4, 5).mT,)),
        case(  # its kernel writes statistics and does not count it
            ("torch.ops.aten._batch_norm_with_update", "x0", "x1", "x1", "x2", "x3", 0.5, 1e-5),
            inputs=(normal(2, 3, 4), normal(3), normal(6)[::2], normal(6).square()[::2]),
        ),
    ],
    "functionalized": lambda: [
        case(("torch.Tensor.view", "x0", -1), inputs=(normal(4, 5),)),
        case(("torch.Tensor.view", "x0", -1), ("torch.Tensor.mul_", "r0", 2.0), inputs=(normal(4, 5),)),
    ],
    "other_generator": lambda: [case(("torch.rand_like", "x0"), inputs=(normal(50),))],
    "seeded_generator": lambda: [case(("torch.rand_like", "x0"), inputs=(normal(50),))],
}

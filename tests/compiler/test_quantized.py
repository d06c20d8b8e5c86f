"""Quantized programs, as PyTorch's quantizers write them: every target gives eager's integers bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
from torch.nn import functional

from tests.sampling import covering
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile
from torchstone.conformance.oracle.ambiguity.saturation import ExactProducts

q = torch.ops.quantized_decomposed
Tensor = torch.Tensor
TARGETS = ["linalg", "tosa", "stablehlo", "tensorrt"]
RANGES = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-(2**15), 2**15 - 1)}


def _weight(*shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 37) % 255 - 127).reshape(shape).to(torch.int8)


def _static(x: Tensor, scale: float = 0.05, zero: int = 3, dtype: torch.dtype = torch.int8) -> Tensor:
    low, high = RANGES[dtype]
    made = q.quantize_per_tensor.default(x, scale, zero, low, high, dtype)
    return q.dequantize_per_tensor.default(made, scale, zero, low, high, dtype)


def _quantized(x: Tensor, dtype: torch.dtype) -> Tensor:
    return q.quantize_per_tensor.default(x, 0.1, 2, *RANGES[dtype], dtype)


def _channels(x: Tensor, axis: int) -> Tensor:
    scale = torch.arange(1, x.shape[axis] + 1) * 0.03
    zero = torch.arange(x.shape[axis]) % 5
    made = q.quantize_per_channel.default(x, scale, zero, axis, -128, 127, torch.int8)
    return q.dequantize_per_channel.default(made, scale, zero, axis, -128, 127, torch.int8)


def _tokens(x: Tensor) -> Tensor:
    scale, zero = q.choose_qparams_per_token_asymmetric.default(x, torch.int8)
    made = q.quantize_per_token.default(x, scale, zero, -128, 127, torch.int8)
    return q.dequantize_per_token.default(made, scale, zero, -128, 127, torch.int8, torch.float32)


def _given(x: Tensor) -> Tensor:
    scale, zero = x.abs().amax() / 127, torch.zeros((), dtype=torch.int64)
    return q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)


def _linear(x: Tensor) -> Tensor:
    weight = q.dequantize_per_tensor.default(_weight(3, 4), 0.02, 0, -127, 127, torch.int8)
    return _static(functional.linear(_static(x), weight))


def _linear_of_channels(x: Tensor) -> Tensor:
    scale, zero = torch.tensor([0.01, 0.02, 0.03]), torch.zeros(3, dtype=torch.int64)
    weight = q.dequantize_per_channel.default(_weight(3, 4), scale, zero, 0, -127, 127, torch.int8)
    return _static(functional.linear(_static(x), weight).relu(), 0.02, 0, torch.uint8)


def _convolution(x: Tensor) -> Tensor:
    weight = q.dequantize_per_tensor.default(_weight(4, 1, 3, 3), 0.02, 0, -127, 127, torch.int8)
    return _static(functional.conv2d(_static(x.reshape(1, 1, 6, 4)), weight, padding=1).relu(), 0.1, 0, torch.uint8)


def _integers(x: Tensor) -> Tensor:
    """Accumulated in int32, rescaled: what an integer accelerator does."""
    total = _quantized(x, torch.int8).to(torch.int32) @ _weight(4, 3).to(torch.int32)
    return torch.clamp(torch.round(total * 0.0123) + 2, -128, 127).to(torch.int8)


def _matrix(x: Tensor) -> Tensor:
    return torch._int_mm(_quantized(x, torch.int8).repeat(6, 2), _weight(8, 16))


def _int4(x: Tensor) -> Tensor:
    """Two weights of 4 bits in each byte, in groups of two with a scale each."""
    packed = (torch.arange(6).reshape(3, 2) * 41 % 256).to(torch.uint8)
    low, high = (packed & 15).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8
    weight = torch.stack([low, high], -1).reshape(3, 4)
    scale = (torch.arange(6).reshape(3, 2) + 1) * 0.01
    return functional.linear(x, (weight.reshape(3, 2, 2) * scale[..., None]).reshape(3, 4))


def _fake(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 5, -128, 127)


def _fake_channels(x: Tensor) -> Tensor:
    zero = torch.zeros(4, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1, 0.2, 0.3, 0.4]), zero, 1, -128, 127)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    **{f"quantize {str(d)[6:]}": lambda x, d=d: _quantized(x, d) for d in RANGES},
    **{f"there and back {str(d)[6:]}": lambda x, d=d: _static(x, 0.3, 1, d) for d in RANGES},
    **{f"scale {s}": lambda x, s=s: _static(x, s, 0) for s in (1e-3, 0.37, 2.0)},
    **{f"channels {axis}": lambda x, axis=axis: _channels(x, axis) for axis in (0, 1)},
    **{f"then {f.__name__}": lambda x, f=f: _static(f(_static(x))) for f in (torch.relu, torch.neg, torch.abs)},
    "sum": lambda x: _static(_static(x) + _static(x.flip(0), 0.1, -4)),
    "product": lambda x: _static(_static(x) * _static(x.flip(0), 0.1, -4), 0.2, 0),
    "joined": lambda x: torch.cat([_quantized(x, torch.int8), _quantized(x * 2, torch.int8)]),
    "pooled": lambda x: functional.max_pool1d(_static(x), 2),
    "16-bit floats": lambda x: _quantized(x.to(torch.bfloat16), torch.int8),
    "tokens": _tokens, "given scale": _given, "linear": _linear, "linear of channels": _linear_of_channels,
    "convolution": _convolution, "integers": _integers, "int8 matrices": _matrix, "int4 weights": _int4,
    "fake": _fake, "fake, of channels": _fake_channels,
    "clamped": lambda x: _quantized(x * 1e6, torch.int8),
}  # fmt: skip


@pytest.mark.few(22)
@pytest.mark.parametrize(("name", "target"), covering(PROGRAMS, [*TARGETS], strength=1))
def test_program(name: str, target: str) -> None:
    program = PROGRAMS[name]
    x = torch.linspace(-9, 9, 24).reshape(6, 4)
    if name == "tokens" and target in ("tosa", "tensorrt"):
        with pytest.raises(Unsupported, match="has no float64"):  # in which PyTorch works out the scales
            compile(program, (x,), target)
        return
    with ExactProducts():  # where the processor has no VNNI, eager's cut off their sums
        want = program(x)
    got = compile(program, (x,), target)(x)
    assert got.dtype == want.dtype
    if want.dtype.is_floating_point:
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(got, want)


def _small_float8(rows: int, columns: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Whole numbers, so that no order of the sums rounds, and eager's kernels give one answer on every processor."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, (rows, columns), generator=generator).float().to(dtype)


ONE, HALF = torch.tensor(1.0), torch.tensor(0.5)
SCALED: dict[str, dict[str, Any]] = {
    "one scale": {"scale_a": HALF, "scale_b": torch.tensor(4.0), "out_dtype": torch.float32},
    "one scale, as a matrix": {"scale_a": HALF.reshape(1, 1), "scale_b": ONE.reshape(1, 1), "out_dtype": torch.float16},
    "a scale for each row": {
        "scale_a": 2.0 ** torch.arange(-2, 3).reshape(5, 1), "scale_b": 2.0 ** torch.arange(3).reshape(1, 3),
        "out_dtype": torch.bfloat16,
    },
    "a bias": {"scale_a": ONE, "scale_b": HALF, "bias": torch.tensor([1.0, -2.0, 0.5]), "out_dtype": torch.float32},
    "a bias in 16 bits": {
        "scale_a": ONE, "scale_b": HALF, "bias": torch.tensor([1.0, -2.0, 0.5]).bfloat16(), "out_dtype": torch.bfloat16,
    },
    "float8 by its scale": {
        "scale_a": ONE, "scale_b": HALF, "scale_result": torch.tensor(4.0), "out_dtype": torch.float8_e5m2,
    },
    "another float8 by a scale": {
        "scale_a": ONE, "scale_b": HALF, "scale_result": torch.tensor(4.0), "out_dtype": torch.float8_e4m3fnuz,
    },
    "a dtype that is not named": {"scale_a": ONE, "scale_b": HALF, "scale_result": torch.tensor(4.0)},
    "too large for float8": {"scale_a": torch.tensor(64.0), "scale_b": torch.tensor(64.0)},
    "a scale that is not used": {
        "scale_a": ONE, "scale_b": HALF, "scale_result": torch.tensor(4.0), "out_dtype": torch.float32,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("target", ["linalg", "evaluator"])
def test_a_product_of_scaled_float8(name: str, dtype: torch.dtype, target: str) -> None:
    options = SCALED[name]
    tensors = {key: value for key, value in options.items() if isinstance(value, Tensor)}
    out_dtype = options.get("out_dtype")

    def fn(x: Tensor, y: Tensor, scales: dict[str, Tensor]) -> Tensor:
        return torch._scaled_mm(x, y.t(), **scales, out_dtype=out_dtype)

    args = _small_float8(5, 33, torch.float8_e4m3fn, 1), _small_float8(3, 33, dtype, 2), tensors
    expected, found = fn(*args), compile(fn, args, target=target)(*args)
    assert found.dtype == expected.dtype
    assert torch.equal(found.float(), expected.float())


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_scaled_mm_v2"), reason="of a later PyTorch")
def test_summed_sizes_that_differ_are_refused() -> None:
    """Eager gives 5 rows of no elements."""

    def fn(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        return torch._scaled_mm_v2(x, y, [scale], [0], [], [scale], [0], [], None, torch.float16)  # pyright: ignore

    x, y = (torch.zeros(rows, 0).to(torch.float8_e5m2) for rows in (5, 16))
    with pytest.raises(Unsupported, match="summed sizes that differ"):
        compile(fn, (x, y, torch.tensor(1.0)))

"""``flat.cast`` between every two dtypes, bit for bit what eager's ``to`` gives wherever that is specified."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.runtime.cpu.bridge import torch_dtype

from .harness import evaluate, of, primitive, run, special

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")


def inputs(source: DType, target: DType) -> torch.Tensor:
    """Return every value of a dtype of up to 16 bits, else special and random ones; none out of an integer's range."""
    kind = torch_dtype(source)
    if source.is_float and source.bits == 8:
        x = torch.arange(256).to(torch.uint8).view(kind)
    elif source.is_half:
        x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(kind)
    elif source.is_float:
        generator = torch.Generator().manual_seed(7)
        bits = torch.randint(-(1 << 31), (1 << 31) - 1, (4000,), generator=generator).to(torch.int32)
        x = torch.cat([special(source), bits.view(torch.float32).to(kind)])
    else:
        x = special(source)
    if (source.is_float or source.is_complex) and target.is_int:
        info = torch.iinfo(torch_dtype(target))
        value = (x.real if source.is_complex else x).to(torch.float64)
        inside = value.isfinite() & (value > float(info.min) - 1) & (value < float(info.max))
        x = x.view(torch.uint8)[inside].view(kind) if source.bits == 8 else x[inside].contiguous()
    return x


@pytest.mark.few(100)
@pytest.mark.parametrize("source", dt.DTYPES, ids=str)
@pytest.mark.parametrize("target", dt.DTYPES, ids=str)
def test_cast(source: DType, target: DType) -> None:
    x = inputs(source, target)
    graph = primitive("cast", of(x), dtype=target)
    (got,), (want,) = run(graph, [x]), evaluate(graph, [x])
    assert got.dtype == want.dtype
    wide = torch.complex128 if target.is_complex else torch.float64 if target.is_float else torch.int64
    got, want = (t.to(wide) if t.dtype != torch.uint64 else t.view(torch.int64) for t in (got, want))
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("source", [dt.float64, dt.float32, dt.bfloat16], ids=str)
def test_uint8_takes_the_low_bits_of_whatever_int64_holds(source: DType) -> None:
    x = 2.0 ** torch.arange(8, 62, dtype=torch.float64)
    x = torch.cat([x + 59.7, -x - 59.7]).to(torch_dtype(source))
    (got,) = run(primitive("cast", of(x), dtype=dt.uint8), [x])
    assert torch.equal(got, x.to(torch.int64).to(torch.uint8)) and torch.equal(got, x.to(torch.uint8))


def test_bfloat16_rounds_subnormals_and_ties_as_eager() -> None:
    bits = torch.arange(0, 1 << 24, 257, dtype=torch.int32)
    x = torch.cat([bits, bits | (1 << 31) - (1 << 32)]).view(torch.float32)
    graph = primitive("cast", of(x), dtype=dt.bfloat16)
    assert torch.equal(run(graph, [x])[0].view(torch.int16), x.to(torch.bfloat16).view(torch.int16))


NUMBERS = [d for d in dt.DTYPES if d.is_int or d.is_float]
SAME_SIZE = [(a, b) for a in NUMBERS for b in NUMBERS if a.bits == b.bits]


@pytest.mark.parametrize(("source", "target"), SAME_SIZE, ids=str)
def test_bitcast_keeps_every_bit(source: DType, target: DType) -> None:
    bits = torch.randint(0, 256, (source.bits // 8 * 500,), dtype=torch.uint8)
    x = bits.view(torch_dtype(source))
    (got,) = run(primitive("bitcast", of(x), dtype=target), [x])
    assert got.dtype == torch_dtype(target)
    assert got.view(torch.uint8).equal(bits)

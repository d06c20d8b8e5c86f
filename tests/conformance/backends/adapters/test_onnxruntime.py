"""ONNX Runtime's adapter: whose fault a failure is, the exporter's or the runtime's. Skipped where it is absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.conformance import backends
from torchstone.conformance.backends import Backend, BackendError, BackendUnsupported


@pytest.fixture(scope="module")
def onnxruntime() -> Backend:
    found = backends.load("onnxruntime")
    state = found.available()
    if not state.ok:
        assert "torchstone[onnxruntime]" in state.install
        pytest.skip(state.reason)
    return found


def test_what_ran_is_told_and_nothing_of_the_exporter_where_it_is_right(onnxruntime: Backend) -> None:
    x, z = torch.rand(3), torch.rand(2, dtype=torch.complex64)
    compiled = onnxruntime.compile(lambda x: {"sum": x + 1, "rest": (x > 0, x.size(0))}, (x,))
    torch.testing.assert_close(compiled(x), {"sum": x + 1, "rest": (x > 0, 3)})
    assert set(compiled.evidence) == {"ran"} and set(compiled.evidence["ran"]) == {"CPUExecutionProvider"}
    compiled = onnxruntime.compile(lambda z: z * 2, (z,))
    torch.testing.assert_close(compiled(z), z * 2)
    assert "exported" not in compiled.evidence  # ONNX has pairs for it


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.complex64])
def test_numbers_go_in_and_out(onnxruntime: Backend, dtype: torch.dtype) -> None:
    x = torch.arange(6).reshape(2, 3).to(dtype).T  # not contiguous
    torch.testing.assert_close(onnxruntime.compile(lambda x: x.reshape(-1), (x,))(x), x.reshape(-1))


def test_a_dtype_that_the_exporter_changed_is_told(onnxruntime: Backend) -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.bfloat16)
    compiled = onnxruntime.compile(torch.abs, (x,))
    assert compiled(x).dtype == torch.float32
    assert compiled.evidence["exported"] == ["output 0 is float32 in the model, bfloat16 in the program"]


def test_an_invalid_model_is_the_exporters(onnxruntime: Backend) -> None:
    with pytest.raises(BackendError, match=r"torch\.onnx exports an invalid model.*Acos") as caught:
        onnxruntime.compile(torch.acos, (torch.ones(2, dtype=torch.bfloat16),))
    assert caught.value.stage == "lower"
    layer = next(
        layer for layer in onnxruntime.layers() if layer.name == "torch.onnx"
    )  # ONNX's evaluator asks no types
    with pytest.raises(BackendError, match=r"torch\.onnx exports an invalid model.*Acos"):
        layer.compile(torch.acos, (torch.ones(2, dtype=torch.bfloat16),))


def test_what_is_declined_is_unsupported(onnxruntime: Backend) -> None:
    with pytest.raises(BackendUnsupported, match="implementation for Add") as caught:  # valid, and no kernel for it
        onnxruntime.compile(torch.add, (torch.ones(2, dtype=torch.bfloat16),) * 2)
    assert (caught.value.stage, caught.value.op) == ("compile", "Add")
    with pytest.raises(BackendUnsupported, match=r"ONNX has no torch\.complex32"):
        onnxruntime.compile(lambda x: x.chalf(), (torch.ones(2),))
    with pytest.raises(BackendUnsupported, match="No ONNX function") as caught:
        onnxruntime.compile(torch.linalg.qr, (torch.eye(2),))
    assert (caught.value.stage, caught.value.op) == ("lower", "linalg_qr")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (torch.unique_consecutive, "not implemented for other type"),
        (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), "only 4D .* are supported"),
    ],
)
def test_what_an_exporters_assertion_declines_is_unsupported(
    onnxruntime: Backend, call: Callable[[torch.Tensor], torch.Tensor], says: str
) -> None:
    with pytest.raises(BackendUnsupported, match=says) as caught:
        onnxruntime.compile(call, (torch.ones(2, 3, 4),))
    assert caught.value.stage == "lower"

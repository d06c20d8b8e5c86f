"""A backend on another device: what it writes, returns and shares comes back as if it had been here. No GPU is needed:
the device is the CPU, to which tensors are copied all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.conformance.backends import load
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.backends.cuda import OnCuda, _placed, dtypes_apart
from torchstone.conformance.backends.protocol import BackendError
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.fx import to_module
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner import progress_mark
from torchstone.conformance.runner.sandbox import Sandbox
from torchstone.conformance.sources import opinfo

OPS = (
    "add",
    "index_put",
    "split",
    "unique",
    "frexp",
    "t",
    "svd",
    "clone",
    "bernoulli",
    "to_sparse",
    "resize_",
    "nn.functional.relu",
)


def there() -> OnCuda:
    return OnCuda(Eager(), "cpu")


@pytest.mark.parametrize("op", OPS)
def test_what_eager_does_there_is_what_it_does_here(op: str) -> None:
    found = [run_case(case, there()) for case in opinfo.iterate([op], ["float32"], 3) if hasattr(case, "program")]
    assert all(verdict.outcome in (Outcome.PASS, Outcome.UNTESTED) for verdict in found), found


def call(function: Any, *tensors: torch.Tensor) -> Any:
    return there().compile(function, tensors)(*tensors)


def test_what_is_written_there_is_written_here_and_views_of_it_are_views() -> None:
    x = torch.zeros(2, 3)
    row = call(lambda x: x.add_(1)[1], x)
    assert x.tolist() == [[1.0] * 3] * 2
    row.fill_(5)
    assert x.tolist() == [[1.0] * 3, [5.0] * 3]


def test_results_that_share_memory_there_share_it_here() -> None:
    one, other = call(lambda x: (y := x + 1, y.view(-1))[:2], torch.zeros(2, 2))
    one[0, 0] = 7
    assert other[0] == 7 and one.untyped_storage()._cdata == other.untyped_storage()._cdata


def test_inputs_take_new_sizes_and_share_the_memory_they_shared() -> None:
    x = torch.arange(6.0)
    y = x[2:4]

    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        y.mul_(10)
        x.unsqueeze_(0)

    call(program, x, y)
    assert x.shape == (1, 6) and x[0, 2:4].tolist() == [20.0, 30.0] and y.tolist() == [20.0, 30.0]


def test_layouts_arrive_as_they_are() -> None:
    x = torch.arange(12.0).view(3, 4).t()[1:, ::2]
    assert call(lambda x: torch.tensor(x.stride()), x).tolist() == list(x.stride())
    z = torch.tensor([1 + 2j]).conj()
    assert call(lambda z: torch.tensor(z.is_conj()), z) and call(lambda z: z, z).is_conj()


def test_memory_that_is_used_up_is_no_error_of_the_programs() -> None:
    def greedy(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError, match="out of memory"):
        call(greedy, torch.ones(1))


DECLINED = {
    "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend": NotImplementedError(
        "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend. This could be because the "
        "operator doesn't exist for this backend, or …\n\nBackendSelect: fallthrough registered at …"
    ),
    "\"addmm_cuda\" not implemented for 'Int'": NotImplementedError("\"addmm_cuda\" not implemented for 'Int'"),
    "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on cuda:0": RuntimeError(
        "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on cuda:0"
    ),
    "nonzero is not supported for tensor with more than 25 dimensions": RuntimeError(
        "nonzero is not supported for tensor with more than 25 dimensions"
    ),
    "… got AssertionError('tensor_indices_or_sections must be on CPU, got cuda:0')": BackendError(
        "TorchRuntimeError: RuntimeError when making fake tensor call\n"
        "  … got AssertionError('tensor_indices_or_sections must be on CPU, got cuda:0')\n  Hint: …",
        "capture",
    ),
}


@pytest.mark.parametrize("said", DECLINED)
def test_what_pytorch_has_no_kernel_for_is_unsupported(said: str) -> None:
    def declines(x: torch.Tensor) -> torch.Tensor:
        raise DECLINED[said]

    with pytest.raises(Unsupported) as declined:
        call(declines, torch.ones(1))
    assert str(declined.value).endswith(said)


@pytest.mark.parametrize("named", ["cpu", torch.device("cpu")])
def test_a_device_that_the_program_names_is_the_backends(named: Any) -> None:
    made = Call("torch.ones", (2,), {"device": named}, "r")
    program = Program((), (made,), Ref("r"))
    (placed,) = _placed(program, torch.device("cuda")).calls
    assert placed.kwargs == {"device": torch.device("cuda")}


@pytest.mark.parametrize("said", ["expected a tensor that is on cuda:0", "CUDA error: operation not supported"])
def test_other_errors_stay_what_they_are(said: str) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(said)

    with pytest.raises(RuntimeError, match=said):
        call(wrong, torch.ones(1))


def test_a_device_that_is_out_of_order_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = there()

    def wrong(x: torch.Tensor) -> torch.Tensor:
        raise IndexError("index 5 is out of range")

    run = backend.compile(wrong, (torch.ones(1),))
    with pytest.raises(IndexError):
        run(torch.ones(1))
    assert not backend.spent()  # the program is at fault, and the device as it was

    def lost(self: OnCuda) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered\nmore")

    monkeypatch.setattr(OnCuda, "_synchronize", lost)
    with pytest.raises(IndexError):
        run(torch.ones(1))
    assert backend.spent() == "the device is out of order: CUDA error: device-side assert triggered"
    assert Sandbox(backend, progress_mark.create_mark()).spent() == backend.spent()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("name", ["eager+cuda", "inductor+cuda"])
def test_without_a_device_it_says_so(name: str) -> None:
    backend = load(name)
    assert backend.name == name
    found = backend.available()
    assert not found.ok and "CUDA" in found.reason


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", ["eager+cuda", "inductor+cuda"])
def test_on_the_device(name: str) -> None:
    for case in opinfo.iterate(["add", "mm", "softmax"], ["float32"], 2):
        verdict = run_case(case, load(name))  # type: ignore[arg-type]
        assert verdict.outcome in (Outcome.PASS, Outcome.FALLBACK), verdict
        assert verdict.evidence["device"] == "cuda"


def test_dtypes_that_are_others_on_a_gpu() -> None:
    statistics = Program(
        ("x", "w"),
        (Call("torch.native_batch_norm", (Ref("x"), Ref("w"), Ref("w"), None, None, True, 0.1, 1e-5), {}, "r"),),
        Ref("r"),
    )
    half = (torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16))
    saved = (torch.float32, torch.bfloat16)
    assert dtypes_apart(statistics, half, torch.device("cuda")) == {1: saved, 2: saved}
    single = tuple(tensor.float() for tensor in half)
    assert dtypes_apart(statistics, single, torch.device("cuda")) == {}
    assert dtypes_apart(lambda x: x[x > 0], half[:1], torch.device("cuda")) == {}


def test_a_result_of_such_a_dtype_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = {1: (torch.float32, torch.bfloat16)}
    monkeypatch.setattr("torchstone.conformance.backends.cuda.dtypes_apart", lambda *_: apart)
    results = call(lambda x: (x, x * 2, {"more": x}), torch.ones(2))
    assert [results[0].dtype, results[1].dtype] == [torch.float32, torch.bfloat16]
    assert results[1].tolist() == [2.0, 2.0] and results[2]["more"].dtype == torch.float32


def test_an_eager_kernel_has_the_last_word_on_the_dtype_here() -> None:
    """The fake kernel for the CPU has bfloat16 for what is saved of bfloat16 with weights of float32; eager float32."""
    saved = Program(
        ("x", "w"),
        (Call("torch.native_batch_norm", (Ref("x"), Ref("w"), Ref("w"), None, None, True, 0.1, 1e-5), {}, "r"),),
        Ref("r"),
    )
    mixed = (torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.ones(3))
    assert saved(*mixed)[1].dtype == torch.float32
    assert dtypes_apart(saved, mixed, torch.device("cuda")) == {}


DTYPES_APART = "expected scalar type BFloat16 but found Float"


def test_dtypes_that_an_eager_kernel_does_not_take_together_are_unsupported() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(DTYPES_APART)

    with pytest.raises(Unsupported, match=DTYPES_APART):
        call(refuses, torch.ones(1))

    class Other:
        name, executors = "other", ()

        def compile(self, fn: Any, args: Any) -> Any:
            return fn

    with pytest.raises(RuntimeError, match=DTYPES_APART):  # which may have made these dtypes itself
        OnCuda(Other(), "cpu").compile(refuses, (torch.ones(1),))(torch.ones(1))  # type: ignore[arg-type]


def test_what_a_branch_makes_is_made_on_the_device() -> None:
    """Dynamo traces branches without the default device, as PyTorch's eager ``cond`` does, which calls it."""
    make = Program(("x",), (Call("torch.full", ([2], 2.0), {}, "y"),), (Ref("y"),))
    keep = Program(("x",), (Call("torch.sin", (Ref("x"),), {}, "y"),), (Ref("y"),))
    program = Program(("p", "x"), (Call("torch.cond", (Ref("p"), keep, make, (Ref("x"),)), {}, "r"),), Ref("r"))
    elsewhere = torch.device("meta")
    operands = torch.empty((), dtype=torch.bool, device=elsewhere), torch.empty(2, device=elsewhere)

    def compiled(program: Program) -> None:
        with elsewhere:
            torch.compile(to_module(program), backend="eager")(*operands)

    with pytest.raises(Exception, match="same device"):
        compiled(program)
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):  # traced, and run: which branch is it?
        compiled(_placed(program, elsewhere))
    assert not _placed(make, elsewhere).calls[0].kwargs  # for others the default device is enough

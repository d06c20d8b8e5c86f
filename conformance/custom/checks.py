"""What an op promises, held against eager: no backend takes part.

The promises are those of PyTorch's manual of custom operators. Eager gives the same twice. What the schema does not
mark as written to stays as it is, and results are fresh memory unless the schema says that they are views. The fake
kernel gives the shapes, dtypes and strides of the real results. Gradients are those of finite differences. Beside
these, the rules of ``torch.library.opcheck``, and the reference and the gradient that the op was registered with.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from torchstone.compiler._torch import fake_tensors
from torchstone.conformance.custom import source
from torchstone.conformance.custom.apart import Died, Made, Steps, stream
from torchstone.conformance.custom.registration import CustomOp
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.oracle.equality import close, equal, same_bits
from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.oracle.tolerances import tolerance
from torchstone.conformance.oracle.ulp import wide
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.sources.sampling import first_line, seeded

OF_OPCHECK = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
DOUBLE = (torch.float64, torch.complex128)
"""Dtypes with digits enough for finite differences."""
MOST_ELEMENTS = 64
"""Of an input whose gradient is looked at: two calls each."""
STEEP = 50.0
"""Numbers beyond which finite differences tell little."""
_RTOL = 1e-4


@dataclass(frozen=True)
class Complaint:
    """A promise that an op breaks: which check says so, of which case, and what it says.

    ``blame``: whether that is wrong, or only worth knowing, such as the want of a fake kernel.
    """

    check: str
    case: str
    message: str
    blame: bool = True

    @property
    def kind(self) -> tuple[str, str]:
        """What it is about: of several of a kind one is told."""
        return self.check, self.message.partition(":")[0]


Check = Callable[[CustomOp, Case], Iterator[tuple[str, bool]]]


def check_op(op: CustomOp, dtypes: Sequence[str], seconds: float) -> Iterator[Complaint]:
    """The promises that the op breaks in eager, the first case of each; made in forks of this process.

    After so many seconds the rest of the checks is left out, and that is a complaint too.
    """
    told: set[tuple[str, str]] = set()
    deadline = time.monotonic() + seconds

    def make(steps: Steps) -> Iterator[Made]:
        for name, (check, samples, kinds) in CHECKS.items():
            for case in _samples(op, dtypes[:kinds], samples):
                if time.monotonic() > deadline:
                    late = Complaint(name, case.id, f"not finished: {seconds:.0f} s were over", False)
                    yield Made("time", dataclasses.asdict(late))
                    return
                if not steps.begin(f"{name} of {case.id}", name):
                    continue
                with seeded(f"{case.id}:{name}"):
                    for message, blame in _guarded(check, op, case):
                        complaint = Complaint(name, case.id, message, blame)
                        yield Made(f"{name}:{case.id}:{message}", dataclasses.asdict(complaint))

    for found in stream(make):
        if isinstance(found, Died):
            yield Complaint("survival", found.step.rpartition(" of ")[2], f"{found.step}: the process was {found.how}")
            continue
        complaint = Complaint(**found.told)
        if complaint.kind not in told:
            told.add(complaint.kind)
            yield complaint


def _samples(op: CustomOp, dtypes: Sequence[str], most: int) -> Iterator[Case]:
    """Some cases of each dtype that call the op once and nothing else."""
    for dtype in dtypes:
        cases = [e for e in source.iterate([op.name], [dtype]) if isinstance(e, Case) and _is_plain(op, e)]
        yield from cases[:: max(1, -(-len(cases) // most))] if most < len(cases) else cases


def _is_plain(op: CustomOp, case: Case) -> bool:
    return [call.target for call in case.program.calls] == [op.target]


def _guarded(check: Check, op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    try:
        yield from check(op, case)
    except Exception as error:
        yield f"raises {type(error).__name__}: {first_line(error)}", True


def _run(case: Case) -> tuple[list[Any], tuple[Tensor, ...]]:
    args = case.fresh_args()
    torch.default_generator.manual_seed(SEED)
    with torch.no_grad():
        return list(leaves(case.program(*args))), args


def _repeats(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    first, second = (leaves([*run[0], *run[1]]) for run in (_run(case), _run(case)))
    if not all(map(equal, first, second)):
        yield "eager gives other numbers each time, from one seed", True


def _schema(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    """What is written to, and what shares memory, is what the schema says."""
    if op.schema is None:
        return
    written, (results, args) = _marked(op, case), _run(case)
    for name, before, after in zip(case.inputs, case.args, args, strict=True):
        if name not in written and not (before.shape == after.shape and same_bits(dense(before), dense(after))):
            yield f"writes to an argument that its schema does not mark as written to: {name}", True
    aliased = {name for name, _ in _aliased(op, case)}
    for result in results:
        if not isinstance(result, Tensor) or not result.numel():
            continue
        for name, given in zip(case.inputs, args, strict=True):
            shares = given.numel() and result.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
            if shares and name not in aliased:
                yield f"returns memory of an argument, which its schema does not say: {name}", True


def _aliased(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    """The inputs that the schema marks, and whether they are written to."""
    (call,) = case.program.calls
    for at, argument in enumerate(op.schema.arguments):
        if argument.alias_info is None:
            continue
        value = call.args[at] if at < len(call.args) else call.kwargs.get(argument.name)
        for leaf in leaves([value]):
            if hasattr(leaf, "path"):
                yield leaf.name, argument.alias_info.is_write


def _marked(op: CustomOp, case: Case) -> set[str]:
    return {name for name, write in _aliased(op, case) if write}


def _fake(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    """The fake kernel gives the shapes, dtypes and strides that eager gives."""
    real = [leaf for leaf in _run(case)[0] if isinstance(leaf, Tensor)]
    try:
        fake = _on_fake_tensors(case)
    except fake_tensors.UnsupportedOperatorException:
        yield "there is no fake kernel: no compiler can capture the op", False
        return
    except (fake_tensors.DynamicOutputShapeException, fake_tensors.DataDependentOutputException) as error:
        yield f"the sizes of the results depend on values: {type(error).__name__}", False
        return
    except Exception as error:
        yield f"{FAKE_RAISES}: {type(error).__name__}: {first_line(error)}", True
        return
    if len(real) != len(fake):
        yield f"the fake kernel gives another number of results: {len(fake)}, eager {len(real)}", True
    for at, (one, other) in enumerate(zip(real, fake, strict=False)):
        for what in ("shape", "dtype", "strides"):
            mine, its = _fact(one, what), _fact(other, what)
            if mine != its:
                yield f"the fake kernel gives another {what}: {its}, eager {mine}, of result {at}", True
                break


def _on_fake_tensors(case: Case) -> list[Tensor]:
    """The results on fake tensors. Raises what the fake kernels raise."""
    given = case.fresh_args()  # made outside: within, they would be fake already
    with fake_tensors.refusals_unlogged(), fake_tensors.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        args = [mode.from_tensor(tensor) for tensor in given]
        return [leaf for leaf in leaves(case.program(*args)) if isinstance(leaf, Tensor)]


FAKE_RAISES = "the fake kernel raises where eager does not"


def fake_error(case: Case) -> Complaint | None:
    """The complaint that a program, which eager runs, does not run on fake tensors; None where it does."""
    try:
        _on_fake_tensors(case)
    except Exception as error:
        return Complaint("fake kernel", case.id, f"{FAKE_RAISES}: {type(error).__name__}: {first_line(error)}")
    return None


def _fact(tensor: Tensor, what: str) -> Any:
    if what == "shape":
        return tuple(int(size) for size in tensor.shape)
    if what == "dtype":
        return tensor.dtype
    return tuple(int(step) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if int(size) > 1)


def _opcheck(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    if op.schema is None:
        return
    if not _is_finite(op, case):  # opcheck takes a NaN beside a NaN for a difference
        return
    args, kwargs = _call_arguments(op, case, requires_grad=op.gradient is not False and _goes_backward(op, case))
    function: Any = op.function
    found = torch.library.opcheck(function, args, kwargs, test_utils=OF_OPCHECK, raise_exception=False)
    for test, result in found.items():
        if str(result) != "SUCCESS":
            yield f"{test}: {_brief(result)}", True


def _is_finite(op: CustomOp, case: Case) -> bool:
    """Whether results and gradients are numbers."""
    try:
        found = _with_gradients(op, case)
    except RuntimeError:  # it writes to what asks for a gradient: who asks for more is told
        return True
    numbers = [leaf.detach() for leaf in found if isinstance(leaf, Tensor)]
    return all(
        bool(wide(tensor).isfinite().all()) for tensor in numbers if tensor.is_floating_point() or tensor.is_complex()
    )


def _goes_backward(op: CustomOp, case: Case) -> bool:
    """Whether eager goes back through it: of an op that has no gradient, none is asked for."""
    try:
        _with_gradients(op, case)
    except RuntimeError:
        return False
    return True


def _with_gradients(op: CustomOp, case: Case) -> list[Any]:
    """The results of a call, and the gradients of its arguments where it has some. Raises what eager raises."""
    args, kwargs = _call_arguments(op, case, requires_grad=True)
    given = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    with torch.enable_grad():
        results = [leaf for leaf in leaves(op.function(*args, **kwargs)) if isinstance(leaf, Tensor)]
        through = [result for result in results if result.requires_grad]
        if not (given and through):
            return results
        cotangents = [torch.ones_like(result) for result in through]
        return [*results, *torch.autograd.grad(through, given, cotangents, allow_unused=True)]


def _brief(result: Any) -> str:
    """What a check of PyTorch's says, without the advice below it."""
    lines = [line.strip() for line in str(result).splitlines() if line.strip()]
    return " ".join(lines[:4])[:400]


def _call_arguments(op: CustomOp, case: Case, *, requires_grad: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    written = _marked(op, case) if op.schema is not None else set()
    tensors = dict(zip(case.inputs, case.fresh_args(), strict=True))
    for name, tensor in tensors.items():
        floating = tensor.is_floating_point() or tensor.is_complex()
        if requires_grad and floating and name not in written:
            tensor.requires_grad_()
    (call,) = case.program.calls
    return case.program.fill((call.args, call.kwargs), tuple(tensors.values()))


def _reference(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    """Eager agrees with the reference that the op was registered with."""
    if op.reference is None:
        return
    args, kwargs = _call_arguments(op, case)
    torch.default_generator.manual_seed(SEED)
    with torch.no_grad():
        wanted = [leaf for leaf in leaves(op.reference(*args, **kwargs)) if leaf is not None]
    given = [leaf for leaf in _run(case)[0] if leaf is not None]
    if len(given) != len(wanted):
        yield f"gives {len(given)} results, the reference {len(wanted)}", True
    for at, (one, other) in enumerate(zip(given, wanted, strict=False)):
        yield from (
            (f"differs from the reference in {what}, of result {at}", True) for what in _differences(one, other)
        )


def _differences(one: Any, other: Any) -> Iterator[Any]:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        if type(one) is not type(other) or one != other:
            yield f"value: {one!r}, reference {other!r}"
        return
    for what in ("shape", "dtype"):
        if _fact(one, what) != _fact(other, what):
            yield f"{what}: {_fact(one, what)}, reference {_fact(other, what)}"
            return
    if one.is_floating_point() or one.is_complex():
        wide = torch.complex128 if one.is_complex() else torch.float64
        row = tolerance(one.dtype, [])
        rtol = max(16 * row.ulps * torch.finfo(one.dtype).eps, 1e-12)
        if not close(one.to(wide), other.to(wide), rtol, rtol):
            yield "value"
    elif not torch.equal(one, other):
        yield "value"


def _gradient(op: CustomOp, case: Case) -> Iterator[tuple[str, bool]]:
    """Eager's gradients are those that the op was registered with, else those of finite differences."""
    if op.gradient is False or case.dtype not in ("float64", "complex128"):
        return
    if (op.schema is not None and op.schema.is_mutable) or not _is_finite(op, case):
        return
    in_rows = case.replace(
        inputs={name: t.clone(memory_format=torch.contiguous_format) for name, t in case.inputs.items()}
    )
    args, kwargs = _call_arguments(op, in_rows, requires_grad=True)
    given = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not given or not all(tensor.dtype in DOUBLE and 0 < tensor.numel() <= MOST_ELEMENTS for tensor in given):
        return
    with torch.enable_grad():
        results = [leaf for leaf in leaves(op.function(*args, **kwargs)) if isinstance(leaf, Tensor)]
        through = [result for result in results if result.requires_grad]
    if not through:
        yield "eager has no gradient for it", False
        return
    if callable(op.gradient):
        cotangents = [torch.randn_like(result) for result in through]
        found = torch.autograd.grad(through, given, cotangents, allow_unused=True)
        wanted = list(leaves(op.gradient(*cotangents, *args, **kwargs)))
        for at, (one, other) in enumerate(zip(found, [leaf for leaf in wanted if leaf is not None], strict=True)):
            yield from (
                (f"eager's gradient differs in {what}, of argument {at}", True) for what in _differences(one, other)
            )
        return
    if any(bool((tensor.detach().abs() > STEEP).any()) for tensor in given):
        return
    complaints = list(_finite_differences(op, args, kwargs, given))
    with torch.no_grad():
        for tensor in given:  # beside an edge, where the two sides differ, there is another point without one
            tensor += torch.randn(tensor.shape).to(tensor.dtype) / 64
    yield from complaints and _finite_differences(op, args, kwargs, given)


def _finite_differences(
    op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[Tensor]
) -> Iterator[tuple[str, bool]]:
    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        stand_ins = dict(zip(map(id, given), tensors, strict=True))
        filled = _replaced((args, kwargs), stand_ins)
        found = [leaf for leaf in leaves(op.function(*filled[0], **filled[1])) if isinstance(leaf, Tensor)]
        return tuple(leaf for leaf in found if leaf.requires_grad)

    try:
        gradcheck(call, tuple(given), rtol=_RTOL, check_undefined_grad=False)
    except GradcheckError as error:
        yield f"eager's gradient is not that of finite differences: {first_line(error)}", True
    except RuntimeError as error:  # of a dtype for which there is no gradient
        yield f"eager's gradient cannot be looked at: {type(error).__name__}: {first_line(error)}", False


def _replaced(value: Any, stand_ins: dict[int, Tensor]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_replaced(item, stand_ins) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, stand_ins) for key, item in value.items()}
    return stand_ins.get(id(value), value)


CHECKS: dict[str, tuple[Check, int, int | None]] = {
    "repeatable": (_repeats, 16, None),
    "schema": (_schema, 16, None),
    "fake kernel": (_fake, 8, None),
    "reference": (_reference, 24, None),
    "gradient": (_gradient, 6, None),
    "opcheck": (_opcheck, 3, 2),
}
"""Every check; how many samples of a dtype it is made on, and of how many dtypes. ``opcheck`` takes a second each."""

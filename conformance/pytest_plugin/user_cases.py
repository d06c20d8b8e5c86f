"""``@torchstone.case``: a project's own programs, tried like the suite's on every backend that pytest is given."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from torchstone.conformance.errors import InputError

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case

ATTRIBUTE = "__torchstone_case__"
SOURCE = "own"

Function = TypeVar("Function", bound=Callable[..., Any])
Inputs = Callable[[Any], Any]


class OwnCaseError(Exception):
    """A declared function that gives no case; the message is for the person who wrote it."""


@dataclass(frozen=True)
class DeclaredCase:
    """A function declared as a case, with what makes its arguments."""

    function: Callable[..., Any]
    name: str
    inputs: tuple[Inputs, ...]
    dtypes: tuple[str, ...]

    def case(self, dtype: str, index: int) -> Case:
        """Run the function once in eager and return its calls as a case.

        The random generators are seeded by the case's name. Raises ``OwnCaseError`` when the function raises, or does
        what a program cannot hold.
        """
        import torch

        from torchstone.conformance.program.case import Case
        from torchstone.conformance.program.literals import DTYPES
        from torchstone.conformance.sources.sampling import seeded
        from torchstone.conformance.sources.tracing import NotExpressible, record

        try:
            with seeded(f"{SOURCE}:{self.name}:{dtype}:{index}"):
                made = self.inputs[index](DTYPES[dtype])
                args = (made,) if isinstance(made, torch.Tensor) else tuple(made)
                program, inputs = record(self.function, args, {})
        except NotExpressible as error:
            raise OwnCaseError(
                f"no program can be made of {self.name}: {error}; it has to be calls to torch on its arguments"
            ) from error
        except Exception as error:
            trace = "".join(traceback.format_exception(error.with_traceback(self._own(error))))
            summary = traceback.format_exception_only(error)[-1].strip()
            raise OwnCaseError(f"{self.name} fails in eager: {summary}\n\n{trace}") from error
        return Case(program, inputs, SOURCE, self.name, dtype, index=index)

    def _own(self, error: Exception) -> Any:
        """The traceback from the first frame of the person's own file on."""
        files = {function.__code__.co_filename for function in (self.function, *self.inputs) if _has_code(function)}
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename not in files:
            step = step.tb_next
        return step or error.__traceback__


def _has_code(function: Any) -> bool:
    return hasattr(function, "__code__")


def case(
    *, inputs: Inputs | Sequence[Inputs], name: str | None = None, dtypes: Sequence[str] = ("float32",)
) -> Callable[[Function], Function]:
    """Declare a function of tensors as a case, for pytest to try on every ``--torchstone-backend``.

    ``inputs`` is called with a ``torch.dtype`` and returns the arguments, a tensor or a tuple; a list of such functions
    is as many cases. ``name`` is the op in ids and reports, the function's own by default. ``dtypes`` are names like
    ``float32``. The function is returned as it is. Raises ``InputError``.
    """
    from torchstone.conformance.errors import UnknownName
    from torchstone.conformance.program.literals import DTYPES

    makers = (inputs,) if callable(inputs) else tuple(inputs)
    if not makers or not all(map(callable, makers)):
        raise InputError(
            "torchstone.case: inputs is a function that takes a dtype and returns the arguments, or a list"
        )
    if isinstance(dtypes, str) or not dtypes:
        raise InputError(f"torchstone.case: dtypes is a list of names, got {dtypes!r}")
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES)

    def declare(function: Function) -> Function:
        called = name or getattr(function, "__name__", "case")
        if ":" in called:
            raise InputError(f'torchstone.case: the colons of case ids part their fields; "{called}" has one')
        setattr(function, ATTRIBUTE, DeclaredCase(function, called, makers, tuple(dict.fromkeys(dtypes))))
        return function

    return declare

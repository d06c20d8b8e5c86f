"""The backend protocol: what a compiler under test has to have, what else it may have, and what it may raise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

LEFT_BY = "left_by"
"""The key in the evidence on a bundle for who called PyTorch's kernels: by name, a program's number for each call."""


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used here; if not, why, and the command line that installs it."""

    ok: bool
    reason: str = ""
    install: str = ""


class BackendError(Exception):
    """The backend failed on a program it should take. ``stage``: capture, lower, compile or run."""

    def __init__(self, message: str, stage: str = "compile") -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage


class BackendGuardError(BackendError):
    """A compiled program refuses a call: it is not what it was compiled for. Of the example's own inputs, an error."""

    def __init__(self, message: str, stage: str = "run") -> None:
        super().__init__(message, stage)


class BackendUnsupported(Exception):
    """The backend says it does not take the program. ``op`` names the op at fault when the backend does."""

    def __init__(self, reason: str, stage: str = "lower", op: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage = stage
        self.op = op


@runtime_checkable
class Backend(Protocol):
    """A compiler under test.

    A backend whose first compilation is slow may also have ``warm_up()``, which a worker calls before its first case.
    One whose modules take long to import, start no thread and touch no device, has their names in ``preload``: they are
    imported once for all workers, if torchstone ships it.
    One that compiles many programs in less time than one by one has ``compile_many(programs)``, which takes pairs of
    what ``compile`` takes and returns for each what ``compile`` returns or raises, and ``batch``, how many at most.
    One that compiles for sizes it does not know has ``compile_dynamic(fn, args, dims)``: ``dims`` names the dims of
    each argument whose size may vary, and what it returns is called with tensors of several sizes.
    One that makes other code of what is large or called often has ``compile_optimized(fn, args)``, which makes it at
    once: it is on trial as well.
    One to which programs of some variants cost a multiple of what others do, or those that draw random numbers
    (``draws``) or have ``control flow``, has these multiples in ``costs``, by name, as in ``{"dynamic": 12}``. A
    fuzzing campaign then draws fewer of them.
    One that is written in Python has the folder of its sources in ``sources``: a guided campaign draws more of what
    runs lines there that nothing ran before.
    One with options has their names in ``options``, and ``configured(options)`` returns it with some of them on.
    One whose callables tell what ran (see ``compile``) has in ``executors`` the names of those that are its own: what
    any other ran is a ``fallback``. Without either its passes are marked as unproven.
    One whose own code computes by PyTorch's kernels, as an interpreter may, has ``uses_eager_kernels = True``: to see
    them run is then no sign of a fallback.
    One that takes what ``torch.export`` makes of the program has ``begins_with = "torch.export"``: a failure can be the
    exporter's. Its ``decompositions()`` is the table that it has PyTorch decompose the program by, if it does,
    ``layers()`` are what it has made of the program, run by somebody else, and ``shares_with`` is the name of a backend
    that has what it begins with in common with it, and goes on otherwise. ``backends.exporting`` has a base for these.
    One that can lose what it works on, as a process does its CUDA device, has ``spent()``, which says why the process
    can run nothing more, and returns an empty string where it can.
    One whose random numbers are the very ones that eager draws from the same seed has ``random_numbers = "eager"``, and
    one that gives the same for the same seed ``"seeded"``: it is held to that. Any other's are judged by distribution.
    """

    name: str

    def available(self) -> Availability:
        """Say whether the backend can run here, cheaply and without raising."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the versions that explain its results, package name to version."""
        ...

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        """Compile ``fn`` (a Program) for tensors like ``args`` and return a callable with ``fn``'s results.

        Neither this nor the returned callable may run ``fn`` on the real tensors by way of eager. The callable may
        have ``evidence``, a dict of JSON values that goes into the verdict's, read after the call. Its key ``ran``
        proves that the backend did the work: what was executed, ``{executor: [op, ...]}``, an op as its name, with
        `` x3`` after it when it ran three times. PyTorch's own kernels go under ``eager``. The callable may have
        ``stages``, too: the text of the program at each of the compiler's stages, by name.
        Raises BackendUnsupported when the backend declines the program, BackendError when it fails; any other
        exception is taken as an ``error`` of the stage it was raised in. The callable is called several times, with
        other values and other strides, too: what it does not take of these it refuses with BackendUnsupported or
        BackendGuardError.
        """
        ...


def counted(ops: Iterable[str]) -> list[str]:
    """The ops as ``evidence["ran"]`` has them: each once, in order, with how often it ran."""
    return [f"{op} x{n}" if n > 1 else op for op, n in Counter(ops).items()]

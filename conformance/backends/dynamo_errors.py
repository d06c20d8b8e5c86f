"""What an exception of ``torch.compile`` says: a program that is declined, or an error at a stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchstone.compiler._torch import dynamo, symbolic_shapes
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported

MESSAGE_LINES = 6
"""How many lines of PyTorch's message are kept."""

NAMES_CALL = "While executing "
"""How the line begins that names the call; it is kept wherever it stands."""

FOUND_FROM = "Found from :"
"""The line above the place of the call in the program, as Inductor's lowering tells it: its file, and then its code."""


@contextmanager
def told_apart() -> Iterator[None]:
    """Raise BackendUnsupported for what TorchDynamo declines, BackendError with the stage for any other exception."""
    try:
        yield
    except (BackendError, BackendUnsupported):
        raise
    except (dynamo.Unsupported, dynamo.UserError) as error:  # the second: a branch that hangs on data
        raise BackendUnsupported(_brief(error), "capture") from error
    except dynamo.BackendCompilerFailed as error:
        inner = error.inner_exception  # a branch that hangs on data is seen as late as in a decomposition
        if isinstance(inner, BackendUnsupported):
            raise inner from error
        if isinstance(inner, symbolic_shapes.GuardOnDataDependentSymNode) or dynamo.declines_control_flow(inner):
            raise BackendUnsupported(_brief(error), "capture") from error
        raise BackendError(_brief(error), "compile") from error
    except dynamo.TorchDynamoException as error:
        if dynamo.declines_control_flow(error):
            raise BackendUnsupported(_brief(error), "capture") from error
        raise BackendError(_brief(error), "capture") from error
    except Exception as error:
        raise BackendError(_brief(error), "run") from error


def _brief(error: BaseException) -> str:
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    if call := _call_in_program(error, lines):
        lines[1:1] = [f"  At: {call}"]
    kept = lines[:MESSAGE_LINES]
    kept += [line for line in lines[MESSAGE_LINES:] if line.startswith(NAMES_CALL)][:1]
    return f"{type(error).__name__}: " + "\n".join(kept)


def _call_in_program(error: BaseException, lines: list[str]) -> str:
    """The line of the program at which it failed, where PyTorch knows it."""
    stack = getattr(error, "real_stack", None)
    if stack and stack[-1].line:
        return str(stack[-1].line).strip()
    found = [at + 2 for at, line in enumerate(lines) if line.startswith(FOUND_FROM)]
    return lines[found[0]].partition(";")[0].strip() if found and found[0] < len(lines) else ""

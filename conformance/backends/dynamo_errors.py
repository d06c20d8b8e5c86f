"""What an exception of ``torch.compile`` says: a program that is declined, or an error at a stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchstone.compiler._torch import dynamo, symbolic_shapes
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported


@contextmanager
def told_apart(lines: int = 6) -> Iterator[None]:
    """Raise BackendUnsupported for what TorchDynamo declines, BackendError with the stage for any other exception.

    ``lines``: how many of PyTorch's message are kept.
    """
    try:
        yield
    except (BackendError, BackendUnsupported):
        raise
    except (dynamo.Unsupported, dynamo.UserError) as error:  # the second: a branch that hangs on data
        raise BackendUnsupported(_brief(error, lines), "capture") from error
    except dynamo.BackendCompilerFailed as error:
        inner = error.inner_exception  # a branch that hangs on data is seen as late as in a decomposition
        if isinstance(inner, BackendUnsupported):
            raise inner from error
        if isinstance(inner, symbolic_shapes.GuardOnDataDependentSymNode) or dynamo.declines_control_flow(inner):
            raise BackendUnsupported(_brief(error, lines), "capture") from error
        raise BackendError(_brief(error, lines), "compile") from error
    except dynamo.TorchDynamoException as error:
        if dynamo.declines_control_flow(error):
            raise BackendUnsupported(_brief(error, lines), "capture") from error
        raise BackendError(_brief(error, lines), "capture") from error
    except Exception as error:
        raise BackendError(_brief(error, lines), "run") from error


def _brief(error: BaseException, count: int) -> str:
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: " + "\n".join(lines[:count])

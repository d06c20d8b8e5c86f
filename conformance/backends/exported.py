"""What torch.export makes of a program, for compilers that take that: tensors in, tensors out, nothing written to.

exported = capture(fn, args)
run = compiler(exported.program)           # flat tensors -> one tensor an output of the exported program
results = exported.finish(args, run(args))  # nested as the program's, mutated arguments written back
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.base import BackendError, BackendUnsupported

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Exported:
    """An ``ExportedProgram`` without mutations; its last outputs are the new values of the arguments ``mutated``."""

    program: Any
    mutated: tuple[int, ...] = ()

    @property
    def outputs(self) -> list[Any]:
        """What each output was in torch.export's trace: a fake tensor with its dtype and sizes, or a plain value."""
        values = self.program.graph.output_node().args[0]
        return [node.meta["val"] if hasattr(node, "meta") else node for node in values]

    def finish(self, args: Sequence[Tensor], computed: Sequence[Tensor]) -> Any:
        """Return the program's result, given a tensor for each output that is none of the program's constants.

        Numbers come as 0-d tensors; mutated arguments are written to. An output that is an argument comes back from
        compilers as a fresh tensor; the result is the argument itself.
        """
        import torch
        from torch.utils._pytree import tree_unflatten

        signature = self.program.graph_signature
        names = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
        by_name = dict(zip(names, args, strict=True))
        wanted = self.outputs
        numbers = (torch.SymInt, torch.SymFloat, torch.SymBool)
        count = sum(isinstance(want, (torch.Tensor, *numbers)) for want in wanted)
        if len(computed) != count:
            raise BackendError(f"gives {len(computed)} results, the program has {count}", "run")
        given = iter(computed)
        flat: list[Any] = []
        for spec, want in zip(signature.output_specs, wanted, strict=True):
            if isinstance(want, torch.Tensor):
                value = next(given)
                flat.append(by_name.get(getattr(spec.arg, "name", ""), value))
            else:
                flat.append(next(given).item() if isinstance(want, numbers) else want)
        out = tree_unflatten(flat, self.program.call_spec.out_spec)
        if not self.mutated:
            return out
        out, written = out
        for index, value in zip(self.mutated, written, strict=True):
            args[index].copy_(value)
        return out


def capture(
    fn: Callable[..., Any], args: tuple[Tensor, ...], decompositions: Mapping[Any, Any] | None = None
) -> Exported:
    """Export a program, decomposed by a table if one is given (PyTorch's core table is ``{}`` to it).

    What torch.export declines is unsupported, at capture.
    """
    import torch

    from torchstone.conformance.program_fx import as_module

    def export(module: torch.nn.Module) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.export copies deprecated tree specs
            return torch.export.export(module, args, strict=False)

    try:
        module = as_module(fn)
        program = export(module)
        if decompositions is None and not _writes(program):
            return Exported(program)
        functional = _functional(program, decompositions)
        signature = functional.graph_signature
        names = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
        kinds = {spec.kind.name for spec in signature.output_specs}
        written = [spec.target for spec in signature.output_specs if spec.kind.name == "USER_INPUT_MUTATION"]
        if not kinds <= {"USER_OUTPUT", "USER_INPUT_MUTATION"}:
            raise BackendUnsupported(f"torch.export gives outputs that are {', '.join(sorted(kinds))}", "capture")
        if not written:
            return Exported(functional)
        mutated = tuple(names.index(name) for name in written)
        return Exported(_functional(export(_on_copies(module, mutated)), decompositions), mutated)
    except BackendUnsupported:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[:2]
        raise BackendUnsupported(f"torch.export: {type(error).__name__}: {' '.join(first)}", "capture") from error


def _schemas(program: Any) -> list[Any]:
    return [node.target._schema for node in program.graph.nodes if hasattr(node.target, "_schema")]


def _writes(program: Any) -> bool:
    """Whether some op of an exported program may write to a tensor: norms write to running statistics untold."""
    return any(schema.is_mutable or _keeps_statistics(schema) for schema in _schemas(program))


def _keeps_statistics(schema: Any) -> bool:
    return any(argument.name == "running_mean" for argument in schema.arguments)


def _functional(program: Any, decompositions: Mapping[Any, Any] | None) -> Any:
    """The program without writes; as it is else, if no table of decompositions is given, unless a norm hides some."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if decompositions is not None:
            return program.run_decompositions(dict(decompositions))
        core = any(map(_keeps_statistics, _schemas(program)))
        return program.run_decompositions(None if core else {})


def _on_copies(module: Any, mutated: tuple[int, ...]) -> Any:
    """The module on copies of what it writes to, which come back beside its result."""
    import torch

    class OnCopies(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any) -> Any:
            own = [arg.clone() if index in mutated else arg for index, arg in enumerate(args)]
            out = self.module(*own)
            return out, [own[index] for index in mutated]

    return OnCopies()

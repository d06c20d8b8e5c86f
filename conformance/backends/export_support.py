"""What torch.export makes of a program, for compilers that take that: tensors in, tensors out, nothing written to.

exported = capture(fn, args)
run = compiler(exported.program)           # flat tensors -> one tensor an output of the exported program
results = exported.finish(args, run(args))  # nested as the program's, mutated arguments written back
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchstone.compiler._torch.operators import HigherOrderOperator, has_schema, schema_of
from torchstone.conformance.backends.composite import composite_ops_known
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported

if TYPE_CHECKING:
    from torch import Tensor


COMPUTED = object()


@dataclass(frozen=True)
class Written:
    """In the place of a result that is an argument which the program has written to: its number."""

    argument: int


@dataclass(frozen=True)
class Exported:
    """An ``ExportedProgram`` that writes to no argument, from tensors to a flat list of tensors and numbers.

    Its last outputs are the new values of the arguments ``mutated``. ``spec`` is the tree of the program's result, and
    ``leaves`` what stands in it: ``COMPUTED`` for each output, ``Written``, or a constant.
    """

    program: Any
    spec: Any
    leaves: tuple[Any, ...]
    mutated: tuple[int, ...] = ()

    @property
    def outputs(self) -> list[Any]:
        """What each output was in torch.export's trace: a fake tensor with its dtype and sizes, or a number."""
        values = self.program.graph.output_node().args[0]
        return [node.meta["val"] if hasattr(node, "meta") else node for node in values]

    @property
    def takes_functions(self) -> bool:
        """Whether there is control flow in it."""
        return any(isinstance(node.target, HigherOrderOperator) for node in self.program.graph.nodes)

    def decomposed(self, table: Mapping[Any, Any]) -> Exported:
        """Return the program decomposed by a table and without writes; of an empty table, that alone."""
        try:
            return replace(self, program=_decomposed(self.program, table))
        except Exception as error:
            raise _declined(error) from error

    def finish(self, args: Sequence[Tensor], computed: Sequence[Tensor]) -> Any:
        """Return the program's result, given a tensor for each output that is none of the program's constants.

        Numbers come as such or as 0-d tensors; mutated arguments are written to. An output that is an argument comes
        back from compilers as a fresh tensor; the result is the argument itself.
        """
        import torch

        from torchstone.compiler._torch.pytrees import tree_unflatten

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
                number = next(given) if isinstance(want, numbers) else want
                flat.append(number.item() if isinstance(number, torch.Tensor) else number)
        for index, value in zip(reversed(self.mutated), reversed(flat), strict=False):
            args[index].copy_(value)
        results = iter(flat)

        def result(leaf: Any) -> Any:
            return args[leaf.argument] if isinstance(leaf, Written) else next(results) if leaf is COMPUTED else leaf

        return tree_unflatten([result(leaf) for leaf in self.leaves], self.spec)


def capture(
    fn: Callable[..., Any],
    args: tuple[Tensor, ...],
    decompositions: Mapping[Any, Any] | None = None,
    dims: Sequence[Sequence[int]] = (),
) -> Exported:
    """Export a program as a user does, and decompose it if a table is given.

    Without a table the ops are the program's own, writes among them: compilers have PyTorch take these out. ``dims``
    are those dims of each argument whose size may vary; a size that the program decides is declined.
    What torch.export declines is unsupported, at capture.
    """
    import torch

    from torchstone.conformance.program.fx import as_module

    def export(module: torch.nn.Module) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.export copies deprecated tree specs
            return torch.export.export(module, args, strict=False, dynamic_shapes=sizes)

    sizes: Any = torch.export.ShapesCollection() if dims else None
    for tensor, axes in zip(args if dims else (), dims, strict=True):
        sizes[tensor] = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
    try:
        module, told = _flat(as_module(fn))
        program = export(module)
        if _by_memory(program) and not all(map(_fills_its_memory, args)):
            raise BackendUnsupported(_NEEDS_MEMORY, "capture")
        mutated = _written(program)
        if mutated:
            module, told = _flat(as_module(fn), mutated)
            program = export(module)
        exported = Exported(program, *told, mutated=mutated)
        return exported if decompositions is None else exported.decomposed(decompositions)
    except BackendUnsupported:
        raise
    except Exception as error:
        raise _declined(error) from error


def _declined(error: Exception) -> BackendUnsupported:
    first = str(error).strip().splitlines()[:2]
    return BackendUnsupported(f"torch.export: {type(error).__name__}: {' '.join(first)}", "capture")


_NEEDS_MEMORY = "as_strided goes by the memory of its argument, which is a view; the compiler is given a dense copy"


def _by_memory(program: Any) -> bool:
    """Whether the program goes by how its arguments lie in memory, and not by their values alone."""
    return any(schema.name.startswith("aten::as_strided") for schema in _schemas(program))


def _fills_its_memory(tensor: Tensor) -> bool:
    held = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return held and tensor.is_contiguous()


def _schemas(program: Any) -> list[Any]:
    return [schema_of(node.target) for node in program.graph.nodes if has_schema(node.target)]


def _writes(program: Any) -> bool:
    """Whether some op of an exported program may write to a tensor: norms write to running statistics untold."""
    return any(schema.is_mutable or _keeps_statistics(schema) for schema in _schemas(program))


def _keeps_statistics(schema: Any) -> bool:
    return any(argument.name == "running_mean" for argument in schema.arguments)


def _written(program: Any) -> tuple[int, ...]:
    """The arguments that a program writes to, by number. What it writes to else is declined.

    Norms are decomposed to see it: their schemas keep silent about the statistics that they write to.
    """
    import torch

    if not _writes(program):
        return ()
    known = torch.export.default_decompositions()
    norms = {n.target for n in program.graph.nodes if has_schema(n.target) and _keeps_statistics(schema_of(n.target))}
    signature = _decomposed(program, {norm: known[norm] for norm in norms if norm in known}).graph_signature
    kinds = {spec.kind.name for spec in signature.output_specs}
    if not kinds <= {"USER_OUTPUT", "USER_INPUT_MUTATION"}:
        raise BackendUnsupported(f"torch.export gives outputs that are {', '.join(sorted(kinds))}", "capture")
    names = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    return tuple(names.index(spec.target) for spec in signature.output_specs if spec.kind.name == "USER_INPUT_MUTATION")


def _decomposed(program: Any, decompositions: Mapping[Any, Any]) -> Any:
    with warnings.catch_warnings(), composite_ops_known():
        warnings.simplefilter("ignore")
        return program.run_decompositions(dict(decompositions))


def _flat(module: Any, mutated: tuple[int, ...] = ()) -> tuple[Any, list[Any]]:
    """The module without the tree and the constants of its result, which no compiler need know, and a list of them.

    The list has what ``Exported`` wants to know once the module has been traced. The arguments ``mutated`` are copied
    before, and the copies come back behind the result; a result that is one of them does not come back twice.
    """
    import torch

    from torchstone.compiler._torch.pytrees import tree_flatten

    told: list[Any] = []
    kinds = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any) -> Any:
            own = [arg.clone() if index in mutated else arg for index, arg in enumerate(args)]
            leaves, spec = tree_flatten(self.module(*own))
            written = {id(own[index]): Written(index) for index in mutated}
            kept = [written.get(id(leaf), COMPUTED if isinstance(leaf, kinds) else leaf) for leaf in leaves]
            told[:] = [spec, tuple(kept)]
            computed = [leaf for leaf, place in zip(leaves, kept, strict=True) if place is COMPUTED]
            return computed + [own[index] for index in mutated]

    return Flat(), told

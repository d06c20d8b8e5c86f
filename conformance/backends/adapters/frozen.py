"""How a case is given to ``torchstone.compile``: inputs but the first as buffers of a module, where these are frozen.

A case has no parameters: all that it computes with are inputs. So those after the first are held, as far as they share
memory with no other. Where sizes may vary the module takes its inputs by place, as the sizes are told: torch.export
asks for them in the form of a function's own parameters, which a script gives names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.export import Dim

from torchstone.compiler._torch.tensors import version
from torchstone.compiler.driver import Executable, compile
from torchstone.conformance.backends.protocol import BackendGuardError
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.program.tensor_storage import copy_tensors


class Holding(nn.Module):
    """A program and the tensors that it holds: called with the rest, it computes what the program does with all.

    ``fixed`` are the places of inputs whose sizes are known.
    """

    def __init__(self, program: Callable[..., Any], args: Sequence[Tensor], fixed: Sequence[int]) -> None:
        super().__init__()
        self.program = program
        self.places = [at for at in _alone(args)[1:] if at in fixed and not args[at].requires_grad]
        self.rest = [at for at in range(len(args)) if at not in self.places]
        for at, tensor in zip(self.places, copy_tensors(args[at] for at in self.places), strict=True):
            self.register_buffer(f"held{at}", tensor)

    def held(self) -> dict[int, Tensor]:
        """The buffers by the places of the inputs that they stand for."""
        return {at: getattr(self, f"held{at}") for at in self.places}

    def forward(self, *rest: Tensor) -> Any:
        given = dict(zip(self.rest, rest, strict=True)) | self.held()
        return self.program(*(given[at] for at in range(len(given))))

    def left(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Of what belongs to all inputs, what belongs to those that are not held."""
        return tuple(args[at] for at in self.rest)

    def called_by(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """What the program was compiled to, called with all inputs.

        BackendGuardError where a held tensor would have to be another. What the program writes to a held tensor is
        written to the input that it stands for.
        """
        held = self.held()
        kept = {at: tensor.clone() for at, tensor in held.items()}

        def run(*args: Tensor) -> Any:
            for at, tensor in held.items():
                if args[at].stride() != tensor.stride() or not same_bits(args[at], tensor):
                    raise BackendGuardError(f"input {at} was frozen when the program was compiled, and is another")
            before = {at: version(tensor) for at, tensor in held.items()}
            found = compiled(*self.left(args))
            for at, tensor in held.items():
                if version(tensor) != before[at]:
                    args[at].copy_(tensor)
                    tensor.copy_(kept[at])
            return found

        run.__dict__.update(vars(compiled))
        return run


def compile_program(
    fn: Callable[..., Any],
    args: tuple[Tensor, ...],
    dims: tuple[tuple[int, ...], ...] | None,
    *,
    frozen: bool,
    **settings: Any,
) -> tuple[Executable, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """What a program is compiled to, and from what calls that to what is called with all inputs.

    ``dims`` are those of each input that may be of any size. Raises as ``torchstone.compile`` does.
    """
    sizes = dims or ((),) * len(args)
    fixed = [at for at, axes in enumerate(sizes) if frozen and not axes]
    holding = Holding(fn, args, fixed) if frozen or dims is not None else None
    left = sizes if holding is None else holding.left(sizes)
    shapes = None if dims is None else (tuple(dict.fromkeys(axes, Dim.AUTO) or None for axes in left),)
    given = args if holding is None else holding.left(args)
    executable = compile(holding or fn, given, dynamic_shapes=shapes, freeze=frozen, **settings)
    return executable, (lambda run: run) if holding is None else holding.called_by


def _alone(args: Sequence[Tensor]) -> list[int]:
    """The places of the tensors that share memory with no other; the first of all is one of them."""
    storages = [tensor.untyped_storage().data_ptr() for tensor in args]
    return [at for at, storage in enumerate(storages) if not at or storages.count(storage) == 1]

"""Parts of a program that have nothing to do with each other, to be judged one by one.

A program that asks an op several things at once has as many parts. What the rounding of one part decides is no question
of the others, and none of their calls has to be run for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor

from torchstone.compiler._torch.tensors import known_version, storage_key
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.pytree import leaves_of
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.program.program import Program, Ref
from torchstone.conformance.program.tensor_storage import copy_tensors


def parts_of(program: Program, args: tuple[Tensor, ...]) -> list[tuple[list[int], Program]]:
    """Each part: the places of its results among the program's, and the calls and inputs that they need.

    The results of a part are as ``taken`` says. Where calls write to what they are given, their order counts: parts
    then share no memory of inputs, and a call that no result comes from is of the part whose values it is given.
    """
    outputs = program.outputs
    whole = [(list(range(len(outputs))) if isinstance(outputs, tuple | list) else [0], program)]
    if not isinstance(outputs, tuple | list) or len(outputs) < 2 or len(program.calls) < 2:
        return whole
    writes = _writes(program, args)
    if writes is None:
        return whole
    memory = {name: f"memory {storage_key(tensor)}" for name, tensor in zip(program.inputs, args, strict=True)}
    groups: list[tuple[list[int], set[str]]] = []
    for place, result in enumerate(outputs):
        places, names = [place], _needed(program, {ref.name for ref in leaves(result)})
        names |= {memory[ref.name] for ref in _read(program, names, result) if ref.name in memory and writes}
        for group in [group for group in groups if group[1] & names]:
            groups.remove(group)
            places, names = [*group[0], *places], group[1] | names
        groups.append((places, names))
    if writes:
        _add_writes(groups, program, memory)
        groups = [group for group in groups if group[0]]
    if len(groups) < 2:
        return whole
    return [(sorted(places), _only(program, sorted(places), names)) for places, names in groups]


def _add_writes(groups: list[tuple[list[int], set[str]]], program: Program, memory: dict[str, str]) -> None:
    """Add to each group the calls that no result comes from, but which may write to what is the group's.

    Those that have to do with no group are one without results.
    """
    for call in program.calls:
        if any(call.result in names for _, names in groups):
            continue
        given = {ref.name for ref in call.refs()}
        places: list[int] = []
        names = {call.result} | given | {memory[name] for name in given if name in memory}
        for group in [group for group in groups if group[1] & names]:
            groups.remove(group)
            places, names = [*group[0], *places], group[1] | names
        groups.append((places, names))


def read_apart(program: Program, parts: list[tuple[list[int], Program]], settled: list[bool]) -> bool:
    """Whether each input that is not settled is read by one part alone, so that it can be judged with that part."""
    readers = Counter(name for _, part in parts for name in part.inputs)
    return all(done or readers[name] == 1 for name, done in zip(program.inputs, settled, strict=True))


def _needed(program: Program, wanted: set[str]) -> set[str]:
    """The results of the calls that some results come from, themselves among them."""
    found: set[str] = set()
    for call in reversed(program.calls):
        if call.result in wanted:
            found.add(call.result)
            wanted |= {ref.name for ref in call.refs()}
    return found


def _only(program: Program, places: list[int], names: set[str]) -> Program:
    calls, outputs = tuple(call for call in program.calls if call.result in names), taken(program.outputs, places)
    read = {ref.name for ref in _read(program, names, outputs)}
    return Program(tuple(name for name in program.inputs if name in read), calls, outputs)


def _read(program: Program, names: set[str], outputs: Any) -> list[Ref]:
    """What some calls and results refer to."""
    calls = [ref for call in program.calls if call.result in names for ref in call.refs()]
    return calls + [leaf for leaf in leaves(outputs) if isinstance(leaf, Ref)]


def taken(outputs: Any, places: list[int]) -> Any:
    """The results at some places: the one, or several as a dict by place."""
    return outputs[places[0]] if len(places) == 1 else {place: outputs[place] for place in places}


def _writes(program: Program, args: tuple[Tensor, ...]) -> bool | None:
    """Whether a call writes to what it is given, or may: eager keeps no count. None where eager refuses the program.

    A few kernels write and do not count it: what is left in the inputs tells, too.
    """
    written = []

    def perform(index: int, function: Any, given: Any, named: Any) -> Any:
        tensors = [leaf for leaf in leaves_of(given, named) if isinstance(leaf, Tensor)]
        before = [known_version(tensor) for tensor in tensors]
        out = function(*given, **named)
        written.append(before != [known_version(tensor) for tensor in tensors] or None in before)
        return out

    given = copy_tensors(args)
    try:
        program.run(given, perform)
    except Exception:
        return None
    return any(written) or not all(map(same_bits, given, args))

"""A Program as a ``torch.fx.GraphModule``: the form in which ``torch.compile`` and ``torch.export`` take it.

Tracing a Program itself would test its interpreter, too; the graph module holds the calls and nothing else, and
what a compiler reports against it names the calls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx

from torchstone.compiler._torch.pytrees import tree_flatten, tree_leaves, tree_unflatten
from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.control_flow import higher_order
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.literals import leaves as literals
from torchstone.conformance.program.member_names import is_bundle
from torchstone.conformance.program.program import GRADIENTS, Call, Program
from torchstone.conformance.program.tensor_storage import copy_tensors

METHODS = "torch.Tensor."


def to_module(program: Program) -> fx.GraphModule:
    """Return a module whose ``forward`` takes the program's tensors and returns its outputs (a tree of tensors)."""
    graph, root = fx.Graph(), torch.nn.Module()
    env: dict[str, Any] = {name: graph.placeholder(name) for name in program.inputs}

    def fill(value: Any) -> Any:
        if isinstance(value, Ref):
            found = env[value.name]
            for step in value.path:
                found = graph.call_function(operator.getitem, (found, step))
            return found
        if isinstance(value, Program):
            name = f"body_{len(list(root.children()))}"
            root.add_module(name, to_module(value))
            return graph.get_attr(name)
        if isinstance(value, slice):
            return slice(fill(value.start), fill(value.stop), fill(value.step))
        if isinstance(value, (tuple, list)):
            return type(value)([fill(item) for item in value])
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return value

    named = is_bundle(program)  # so that what a compiler makes of it tells of which program it is
    for call in program.calls:
        if call.target == "torch.manual_seed":
            continue  # no compiler takes it; values that depend on the seed are not compared anyway
        args, kwargs = tuple(fill(arg) for arg in call.args), {key: fill(arg) for key, arg in call.kwargs.items()}
        name = call.target.removeprefix(METHODS)
        function = resolve(call.target)
        traced = higher_order(call.target, args)
        node: tuple[str, Any, Any, Any]
        if traced is not None:
            node = ("call_function", *traced, None)
        elif isinstance(function, operator.attrgetter):
            node = ("call_function", getattr, (*args, name), None)
        elif call.target.startswith(METHODS) and not name.startswith("__"):
            node = ("call_method", name, args, kwargs)
        else:
            node = ("call_function", function, args, kwargs)
        env[call.result] = graph.create_node(*node, name=call.result if named else None)
    graph.output(fill(program.outputs))
    return fx.GraphModule(root, graph, class_name="Program")


def compiled_forward(
    fn: Callable[..., Any], args: tuple[Tensor, ...], compile: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    """A program with what ``compile`` makes of it; of one that takes gradients, of its forward part.

    Then autograd runs through what the compiler made, as in training. Where eager has no gradient, for want of a way
    from input to result, the one step that the forward part has become gives zeros: these are none here, too.
    """
    parts = around_gradients(fn)
    if parts is None:
        return compile(_plain(fn))
    leaves, forward, rest = parts
    none = _none_in_eager(fn, args)
    compiled = compile(_plain(forward))

    def run(*tensors: Tensor) -> Any:
        with torch.enable_grad():
            known = (*tensors, *leaves(*tensors))
            results, tree = tree_flatten(rest(*known, *compiled(*known)))
        without = [None if at in none and _is_zero(result) else result for at, result in enumerate(results)]
        return tree_unflatten(without, tree)

    return run


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What ``torch.compile`` is given: a graph's function, for a graph module hides what is raised in it by an error of
    its own, when it looks for the line.
    """
    module = as_module(fn)
    return module.forward if isinstance(module, fx.GraphModule) else module


def _none_in_eager(fn: Callable[..., Any], args: tuple[Tensor, ...]) -> set[int]:
    """Which results are None in eager; none where eager refuses the program."""
    with torch.random.fork_rng(devices=[]):
        try:
            results = tree_leaves(fn(*copy_tensors(args)))
        except Exception:  # whatever eager raises, the compiled program has to raise
            return set()
    return {at for at, result in enumerate(results) if result is None}


def _is_zero(result: Any) -> bool:
    return isinstance(result, Tensor) and not bool(result.any())


def takes_gradients(fn: Callable[..., Any]) -> TypeGuard[Program]:
    """Whether a callable is a program that calls ``torch.autograd.grad``."""
    return isinstance(fn, Program) and any(call.target == GRADIENTS for call in fn.calls)


def keeps_graph(fn: Callable[..., Any]) -> bool:
    """Whether gradients of what ``around_gradients`` compiles are taken more than once."""
    taken = [call for call in fn.calls if call.target == GRADIENTS] if takes_gradients(fn) else []
    return len(taken) > 1 or any(call.kwargs.get("retain_graph") for call in taken)


def around_gradients(fn: Callable[..., Any]) -> tuple[Program, Program, Program] | None:
    """A program that takes gradients in three parts: its leaves, the forward part, and what follows from there.

    So a user trains with a compiled model: the forward part alone is compiled, autograd calls what the compiler made.
    The first part gives the leaves; the second takes the inputs and the leaves; the third these, and the results of the
    second that it uses. None for a program that takes no gradients.
    """
    if not takes_gradients(fn):
        return None
    leaves, forward, rest = _split(fn)
    names = (*fn.inputs, *(call.result for call in leaves))
    used = {ref.name for call in rest for ref in call.refs()}
    used |= {leaf.name for leaf in literals(fn.outputs) if isinstance(leaf, Ref)}
    results = tuple(call.result for call in forward if call.result in used)
    return (
        Program(fn.inputs, tuple(leaves), tuple(Ref(call.result) for call in leaves)),
        Program(names, tuple(forward), tuple(map(Ref, results))),
        Program((*names, *results), tuple(rest), fn.outputs),
    )


def _split(program: Program) -> tuple[list[Call], list[Call], list[Call]]:
    """The calls that make leaves of inputs, those that hang on no gradient, and the others.

    Of a program that writes to memory in place, all that comes after its first gradients is the others.
    """
    leaves: list[Call] = []
    forward: list[Call] = []
    rest: list[Call] = []
    given, after = set(program.inputs), set[str]()
    ordered = any(_may_write(call) for call in program.calls)
    # What is compiled as one is one step of autograd, gone back through for each of the results.
    several = sum(call.target == GRADIENTS for call in program.calls) > 1
    for call in program.calls:
        names = {ref.name for ref in call.refs()}
        if call.target == GRADIENTS or names & after or (ordered and rest):
            kept = {"retain_graph": True} if several and call.target == GRADIENTS else {}
            rest.append(replace(call, kwargs={**call.kwargs, **kept}))
            after.add(call.result)
        elif call.target in _LEAVES and names <= given:
            leaves.append(call)
            given.add(call.result)
        else:
            forward.append(call)
    return leaves, forward, rest


def _may_write(call: Call) -> bool:
    name = call.target.rpartition(".")[2]
    return call.target not in _LEAVES and (name.endswith("_") or "out" in call.kwargs or "batch_norm" in name)


_LEAVES = ("torch.Tensor.detach", "torch.Tensor.requires_grad_")


def as_module(fn: Callable[..., Any]) -> torch.nn.Module:
    """Return ``fn`` as a module: a Program's graph, a module as it is, any other callable called by ``forward``."""
    if isinstance(fn, Program):
        return to_module(fn)
    if isinstance(fn, torch.nn.Module):
        return fn
    return _Wrapped(fn)


class _Wrapped(torch.nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)

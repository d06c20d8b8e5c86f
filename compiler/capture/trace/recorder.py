"""Turns the ATen calls made under it into a graph. Both frontends and the decompositions record with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import torch

from torchstone.compiler._torch.functorch import is_wrapped
from torchstone.compiler._torch.modes import TorchDispatchMode, no_dispatch_modes, take_tracers_place
from torchstone.compiler._torch.operators import HigherOrderOperator, call_for_any_device, schema_of
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler._torch.settings import get_onednn, set_onednn
from torchstone.compiler._torch.symbolic_shapes import ShapeEnv
from torchstone.compiler.capture.leaf_gradients import KeepGradients
from torchstone.compiler.capture.memory.layouts import Layouts, draws, strides_of
from torchstone.compiler.capture.memory.strided import BY_MEMORY, by_place
from torchstone.compiler.capture.refusals import refusing
from torchstone.compiler.capture.symbolic import floats, numbers
from torchstone.compiler.capture.symbolic.attempts import Example
from torchstone.compiler.capture.symbolic.scalars import decompose
from torchstone.compiler.capture.symbolic.specialize import Decisions
from torchstone.compiler.capture.trace import control_flow, special_ops
from torchstone.compiler.capture.trace.aten_literals import to_literal
from torchstone.compiler.capture.trace.generator_state import Draws
from torchstone.compiler.capture.trace.schemas import schema_order
from torchstone.compiler.capture.trace.tensors import holds_no_numbers, tensor_type
from torchstone.compiler.capture.trace.written_ops import call_written
from torchstone.compiler.capture.user_code import user_location
from torchstone.compiler.diagnostics import Unsupported, origin
from torchstone.compiler.ir import Graph, Location, Operation, PrimType, TensorType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.graph import values_in, walk
from torchstone.compiler.ir.sizes import BIND, sized_by_values, symbols_mentioned
from torchstone.compiler.library import is_ordered


class Mutation(Exception):
    """The program writes in place: it has to be recorded again, functionalized."""


class SizedByValues(Exception):
    """The size of a tensor depends on values: the program has to be recorded again, in one way or another."""


class Policy(Enum):
    """What to do when a number that Python sees, or a size, depends on the values of tensors."""

    REFUSE = "refuse both"
    NUMBERS = "specialize the program to numbers; leave it to the caller where sizes are met"
    SYMBOLS = "let sizes be symbols, as PyTorch has them; refuse numbers"
    SPECIALIZE = "specialize the program to both"


class Recorder(TorchDispatchMode):
    """Records into ``graph``. Tensors not announced with ``input`` become captured inputs (``captures``).

    ``mutations`` maps the index of an argument to the value it holds after the program, for functionalized programs.
    ``numbers`` holds the run-time numbers that are values of the graph, by the name of PyTorch's symbol.
    ``hints`` holds what those that are known for the example are, by the id of their value.
    ``specialized`` holds the ops that say what the program was specialized to.
    ``example`` tells the numbers and sizes of a run before this one, ``reads`` and ``sizes`` keep those of this one.
    ``layouts`` has what is known of memory; ``replayed`` says that PyTorch has functionalized the program.
    ``row_major`` says that the program means what it was recorded as only for tensors that lie in memory as these do.
    """

    supports_higher_order_operators = True

    def __init__(self, name: str, *, functional: bool = False, policy: Policy = Policy.REFUSE) -> None:
        super().__init__()
        take_tracers_place(self)
        self.graph = Graph(name, [])
        self.captures: list[tuple[Value, torch.Tensor]] = []
        self.mutations: dict[int, Value] = {}
        self.location: Location | None = None
        self.numbers: dict[str, Value] = {}
        self.specialized: list[Operation] = []
        self.draws: Draws | None = None
        self.row_major = False
        self.replayed = False
        self.layouts = Layouts()
        self._numberless: dict[int, Location] = {}  # on meta, and where they came from
        self._blank: dict[int, torch.Tensor] = {}  # uninitialized, and used by no op yet
        self.gradients = KeepGradients()
        self.refused: Unsupported | None = None
        self.hints: dict[int, Any] = {}
        self.example: Example | None = None
        self.reads: list[Any] = []
        self.sizes: list[Any] = []
        self.decisions = Decisions(self)
        self.decomposing: set[Any] = set()
        self._floats: dict[int, Value] = {}  # of Python's operations, by the node of their result
        self._onednn: list[bool] = []
        self._policy = policy
        self._functional = functional
        self._values: dict[int, Value] = {}
        self._inputs: dict[int, int] = {}
        self._alive: list[Any] = []  # ids are only good while the tensors live

    def input(self, tensor: torch.Tensor, name: str) -> Value:
        """Announce an argument of the graph."""
        value = self.bind(tensor, name)
        self.gradients.meet(tensor)
        self._inputs[id(tensor)] = len(self.graph.args)
        self.layouts.arguments.append(strides_of(tensor))
        self.graph.args.append(value)
        return value

    def bind(self, tensor: torch.Tensor, name: str = "") -> Value:
        """Return a new value for a tensor that the program has come by."""
        self._alive.append(tensor)
        value = self._values[id(tensor)] = Value(tensor_type(tensor), name)
        self.layouts.tensors[id(value)] = tensor
        return value

    def operand(self, leaf: Any) -> Any:
        """Return the IR operand for an argument of a call."""
        if isinstance(leaf, torch.Tensor):
            value = self._values.get(id(leaf))
            if value is None:
                return self.capture(leaf, leaf)
            return self._written(leaf) or value if self._blank.pop(id(leaf), None) is not None else value
        if isinstance(leaf, list | tuple):
            return tuple(self.operand(item) for item in leaf)
        if isinstance(leaf, torch.SymFloat):
            return self.number(leaf)
        return to_literal(leaf)

    def number(self, number: Any) -> Value:
        """Return the 0-d value of a run-time number."""
        value = self._floats.get(id(number.node))
        if value is None:
            value = numbers.number_value(number, self.numbers, self.emitter())
        self.hint(value, self.hint_of(number))
        return value

    def is_float(self, number: Any) -> bool:
        """Say whether a number is the result of an operation on floats, which has been recorded."""
        return id(number.node) in self._floats

    def hint(self, value: Value, hint: Any) -> None:
        """Note what a number is for the example, where that is known."""
        if hint is not None:
            self.hints[id(value)] = hint

    def hint_of(self, number: Any) -> Any:
        """Return what a number is for the example; None where that is not known."""
        if not isinstance(number, numbers.NUMBERS):
            return number
        if id(number.node) in self._floats:
            return self.hints.get(id(self._floats[id(number.node)]))
        expr = number.node.expr
        sizes = self.decisions.sizes
        known = {s: self.hints.get(id(self.numbers.get(str(s))), sizes.get(str(s))) for s in expr.free_symbols}
        if None in known.values():
            return None
        return known[expr] if expr in known else number.node.pytype(expr.xreplace(known))

    user_location = staticmethod(user_location)

    def emitter(self) -> numbers.NumberEmitter:
        return numbers.NumberEmitter(self.graph.ops, self.location or user_location())

    def _operands(self, func: Any, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the operands for the arguments of a call, in the order of its schema."""
        tensors = [self.operand(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]

        def operand(argument: Any, leaf: Any) -> Any:
            if not isinstance(leaf, numbers.NUMBERS) or not self.is_value(leaf):
                return self.operand(leaf)
            if isinstance(leaf, torch.SymInt) and "int" in str(argument.type).lower():
                return self.operand(leaf)  # it is made a size, see ``bind_sizes``
            if not numbers.takes_number(func, argument):
                return self.operand(self.decisions.settle(leaf, f"{argument.name} of {func}"))
            value = self.number(leaf)
            dtype = numbers.as_operand(value, tensors)
            cast = value if dtype is None else self.emitter().cast(value, dtype)
            self.hint(cast, self.hints.get(id(value)))
            return cast

        return tuple(operand(a, leaf) for a, leaf in zip(schema_of(func).arguments, leaves, strict=True))

    def _at_place(self, func: Any, x: torch.Tensor, *more: Any) -> Operation:
        """Return the op that reads or writes at a place that values tell, from the end when it is negative."""
        *source, dim, index, location = more
        indices = (*[None] * (dim % x.dim()), self.number(index))
        written = (self.operand(source[0]), False) if source else ()
        return Operation(
            special_ops.AT_PLACE[func], (self.operand(x), indices, *written), (), location=location.noted(str(func))
        )

    def is_value(self, number: Any) -> bool:
        """Say whether a number that is no size depends on values: as an argument of an op it has to be a value."""
        return any(str(s) in self.numbers for s in number.node.expr.free_symbols)

    def bind_sizes(self, env: ShapeEnv) -> set[str]:
        """Make sizes of the ints among the numbers that are used as one, or assumed things of; return their names."""
        names = symbols_mentioned(self.graph)
        names.update(
            str(s) for asserts in env.deferred_runtime_asserts.values() for a in asserts for s in a.expr.free_symbols
        )
        names &= {name for name, value in self.numbers.items() if value.dtype == dt.int64}
        makers = {id(r): op for op in self.graph.ops for r in op.results}
        for name in sorted(names):
            value = self.numbers[name]
            op = makers.get(id(value))
            place = 0 if op is None else next(i for i, other in enumerate(self.graph.ops) if other is op) + 1
            location = op.location if op is not None else Location()
            self.graph.ops.insert(place, Operation(BIND, (value,), (), {"size": symbol(name)}, location))
        return names

    def capture(self, tensor: torch.Tensor, original: torch.Tensor) -> Value:
        """Announce an argument of the graph that stands for a tensor the program holds; read again at each call."""
        if (location := self._numberless.get(id(tensor))) is not None:
            what = "a tensor on device meta" if tensor.is_meta else "a tensor made of one on device meta"
            raise Unsupported(what, where=origin(location), stage="capture")
        if is_wrapped(original):
            raise Unsupported("a tensor inside of torch.func that is taken for a constant", stage="capture")
        value = self.input(tensor, f"c{len(self.captures)}")
        self.layouts.arguments[-1] = strides_of(original)
        self.captures.append((value, original))
        return value

    def _on_meta(self, out: Any) -> Any:
        """Return what holds no numbers, its line noted: it may not get into the graph."""
        for tensor in (leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)):
            self._alive.append(tensor)
            self._numberless[id(tensor)] = self.location or user_location()
        return out

    def knows(self, tensor: torch.Tensor) -> bool:
        """Say whether a tensor is a value of the graph."""
        return id(tensor) in self._values

    def alias(self, tensor: torch.Tensor, value: Value) -> None:
        """Let a tensor stand for a value that is known already."""
        self._alive.append(tensor)
        self._values[id(tensor)] = value

    def __enter__(self) -> Recorder:
        # oneDNN's LSTM is one op of its own, with memory of its own kind among its results.
        self._onednn.append(get_onednn())
        set_onednn(False)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        set_onednn(self._onednn.pop())

    def nested(self, name: str, location: Location) -> Recorder:
        """Return a recorder for a function that an op of the program calls; sizes in it must not depend on values."""
        inner = Recorder(name, functional=self._functional)
        inner.location = location
        return inner

    @refusing(Mutation, SizedByValues, Unsupported)
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if isinstance(func, HigherOrderOperator):
            return control_flow.record(self, func, args, self.location or user_location())
        of_sizes = schema_of(func).name.startswith("aten::sym_")
        if func.namespace in ("prim", "profiler") or of_sizes or func in special_ops.METADATA_OPS:
            return func(*args, **kwargs)
        if holds_no_numbers(args, kwargs):
            return self._on_meta(func(*args, **kwargs))
        if schema_of(func).name.startswith("aten::_foreach_") and not schema_of(func).is_mutable:
            with self:  # one op for each tensor of a list, as PyTorch's own kernel for any device has it
                return call_for_any_device(func, *args, **kwargs)
        if (out := call_written(self, func, args, kwargs)) is not NotImplemented:
            return out
        if func.namespace == "prims" and getattr(func, "impl_aten", None) is not None:
            with self:  # PyTorch's references are written in prims; each prim says what it is in ATen
                if func is torch.ops.prims.convert_element_type.default:  # of which it says it with a write
                    return torch.ops.aten._to_copy.default(args[0], dtype=args[1])
                return func.impl_aten(*args, **kwargs)
        if func in special_ops.RANGES:  # the ShapeEnv takes note of them
            return func(*args, **kwargs)
        location = self.location or user_location()
        if func in special_ops.SYNC_OPS:
            return self._number(func, args, kwargs, location)
        if schema_of(func).is_mutable and func not in special_ops.FUNCTIONAL_BY_NATURE:
            raise Mutation(str(func))
        if func is torch.ops.aten.native_batch_norm.default and args[5] and args[3] is not None:
            return self._training_batch_norm(args, location)
        if func in BY_MEMORY:
            self.row_major = True
            with self:
                value = self.operand(by_place(func, args, kwargs))
            out = func(*args, **kwargs)
            self.alias(out, value)
            operands = tuple(self.operand(leaf) for leaf in schema_order(func, args, kwargs))
            self.layouts.by_memory.append((value, Operation(str(func), operands, (value,))))
            return out
        return self._record(func, args, kwargs, location)

    def __sym_dispatch__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Compute with numbers: ints and logic are left to sympy, and what makes or takes floats is recorded at once.

        A float of sizes alone has what sympy says of it too, for the sizes that are made of it.
        """
        if not floats.computes_with_floats(func, args):
            return func(*args, **kwargs)
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, numbers.NUMBERS)]
        sized = not any(self.is_value(a) for a in given)
        hints = [self.hint_of(a) for a in args]
        try:
            checked = self._policy is Policy.SYMBOLS  # other programs are PyTorch's: of sizes, and made not to raise
            value = floats.compute(func, args, self.number, self.emitter(), sized=sized, checked=checked, hints=hints)
        except Unsupported as error:
            if sized:
                return func(*args, **kwargs)
            if self.example is not None:
                if func is round and (rounded := self.decisions.ask("round", *args)) is not None:
                    return rounded
                return func(*(self.decisions.settle(a, error.message) for a in args), **kwargs)
            self.refused = error  # also where the program goes on with another number
            raise
        with contextlib.suppress(ArithmeticError, ValueError):
            unknown = any(h is None for a, h in zip(args, hints, strict=True) if isinstance(a, numbers.NUMBERS))
            self.hint(value, None if unknown else func(*hints))
        if sized:
            out = func(*args, **kwargs)
        else:
            out = floats.opaque(func, given[0].node.shape_env)
            (theirs,) = out.node.expr.free_symbols
            self.decisions.made(theirs, given)
            self.numbers[str(theirs)] = value if value.dtype == dt.float64 else self.emitter().cast(value, dt.int64)
        if isinstance(out, numbers.NUMBERS):
            self._alive.append(out.node)
            self._floats[id(out.node)] = value
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, location: Location) -> Any:
        args, kwargs = self.decisions.stood_for((args, kwargs))
        leaves = schema_order(func, args, kwargs)
        if (out := decompose(self, func, leaves, args, kwargs, location)) is not None:
            return out
        if func in special_ops.AT_PLACE and isinstance(leaves[-1], torch.SymInt) and self.is_value(leaves[-1]):
            op = self._at_place(func, *leaves, location)
        else:
            op = Operation(str(func), self._operands(func, leaves), (), location=location)
        if random := draws(func, leaves):
            op.attributes = self.layouts.attributes(func, leaves, replayed=self.replayed)
            if op.attributes and not is_ordered(op):
                raise Unsupported(f"{func} of tensors that are not row-major", op=op.name, stage="capture")
        if sized_by_values(op):
            self._met_size(op)
        run = special_ops.to_run(func, leaves)
        with self.drawing(location) if is_ordered(op) else contextlib.nullcontext():
            out = run(*args, **kwargs)
        if random:
            out = self.layouts.drawn(out)
        op.results = self._results(func, out)
        self.graph.ops.append(op)
        if sized_by_values(op):
            self.sizes.append([r.shape for r in op.results if isinstance(r.type, TensorType)])
            self.decisions.sized(self.sizes[-1])
        if func.overloadpacket in special_ops.UNINITIALIZED_OPS and self._policy in (Policy.NUMBERS, Policy.SPECIALIZE):
            self._blank[id(out)] = out.zero_()
        return out

    def _written(self, blank: torch.Tensor) -> Value | None:
        """Return a captured input for an uninitialized tensor that is none any more; None where nobody wrote to it.

        PyTorch's C++ writes a list of numbers straight into memory. The graph takes uninitialized memory to be zeros.
        """
        with no_dispatch_modes():
            # And nothing of what lies between them. A tensor of one element is contiguous with any stride.
            elements = blank.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
            return self.capture(blank, blank.clone()) if bool(elements.any()) else None

    @contextlib.contextmanager
    def drawing(self, location: Location) -> Iterator[None]:
        """Record the seed that the program has set since its last draw; what is done inside is its next one."""
        seed = self.draws.seed() if self.draws is not None else None
        if seed is not None:
            self.graph.ops.append(Operation("flat.seed", (), (), {"seed": seed}, location))
        yield
        if self.draws is not None:
            self.draws.drawn()

    def _met_size(self, op: Operation) -> None:
        if self._policy is Policy.NUMBERS:
            raise SizedByValues
        if self._policy is Policy.REFUSE:
            raise Unsupported("the size of its result depends on values", op=op.name, stage="capture")
        if self._policy is Policy.SPECIALIZE:
            self.specialized.append(op)

    def _number(self, func: Any, args: Any, kwargs: Any, location: Location) -> Any:
        """Give Python the number, and have the tensor it came from held against it at run time."""
        if self._policy is Policy.REFUSE:
            raise Unsupported("the program looks at the values of its tensors", op=str(func), stage="capture")
        if func is torch.ops.aten.equal.default and args[0].shape != args[1].shape:
            return False
        if self._policy is Policy.SYMBOLS:
            return self._symbol(func, args, kwargs, location)
        number = func(*args, **kwargs)
        self.reads.append(number)
        with self, self.noted(location):
            tensor = special_ops.SYNC_OPS[func](*args, **kwargs)
        if (again := tensor.item()) != number and again == again:
            raise Unsupported("the values of its tensors say one thing, eager another", op=str(func), stage="capture")
        op = Operation("flat.specialize", (self.operand(tensor),), (), {"value": number}, location)
        self.graph.ops.append(op)
        self.specialized.append(op)
        return number

    def _symbol(self, func: Any, args: Any, kwargs: Any, location: Location) -> Any:
        """Give Python PyTorch's symbol of a number, whose value the graph has."""
        if func is not torch.ops.aten._local_scalar_dense.default:
            with self, self.noted(location):
                return special_ops.SYNC_OPS[func](*args, **kwargs).item()
        read, baked = self.example.read() if self.example is not None else (None, False)
        if baked or isinstance(read, complex):
            with self, self.noted(location):
                return self.decisions.hold(self.operand(args[0].reshape(())), read, location)
        number = func(*args, **kwargs)
        if isinstance(number, numbers.NUMBERS):
            (theirs,) = number.node.expr.free_symbols
            with self, self.noted(location):
                dtype = torch.float64 if isinstance(number, torch.SymFloat) else torch.int64
                value = self.numbers[str(theirs)] = self.operand(args[0].reshape(()).to(dtype))
            self.hint(value, None if read is None else _hint(number, read))
            self.decisions.read(theirs, location)
        return number

    @contextlib.contextmanager
    def noted(self, location: Location) -> Iterator[None]:
        """Note on the ops recorded inside that they are there for a number."""
        was, self.location = self.location, location.noted(numbers.NOTE)
        try:
            yield
        finally:
            self.location = was

    def _results(self, func: Any, out: Any) -> tuple[Value, ...]:
        results: list[Value] = []
        for item in out if isinstance(out, list | tuple) else (out,):
            if isinstance(item, torch.Tensor):
                results.append(self.bind(item))
            elif item is None:
                results.append(Value(PrimType("none")))
            else:
                raise Unsupported(
                    f"{func} gives a Python {type(item).__name__} that depends on data", op=str(func), stage="capture"
                )
        return tuple(results)

    def _training_batch_norm(self, args: Any, location: Location) -> Any:
        """Its schema does not say that it updates the running statistics: record the op that returns them instead."""
        if not self._functional:
            raise Mutation("aten.native_batch_norm.default")
        statistics = args[3:5]
        if not all(id(t) in self._inputs for t in statistics):
            raise Unsupported(
                "batch norm updates statistics that are no argument",
                op="aten.native_batch_norm.default",
                stage="capture",
            )
        out = self._record(torch.ops.aten._native_batch_norm_legit_functional.default, args, {}, location)
        for tensor, updated in zip(statistics, out[3:], strict=True):
            self.mutations[self._inputs[id(tensor)]] = self._values[id(tensor)] = self.operand(updated)
        return out[:3]

    def position(self, tensor: torch.Tensor) -> int:
        """Return which argument of the graph a tensor announced with ``input`` is."""
        return self._inputs[id(tensor)]

    def drop_captures(self, outputs: Iterable[Any], kept: Iterable[torch.Tensor]) -> None:
        """Leave out the captured arguments that no op, no output and no write has; ``kept`` are others to be left."""
        used = {id(leaf) for op in walk(self.graph) for leaf in values_in(op.operands)}
        used |= {id(leaf) for leaf in values_in((*outputs, *self.mutations.values()))}
        used |= {id(self.graph.args[index]) for index in (*self.mutations, *map(self.position, kept))}
        mine = {id(value) for value, _ in self.captures}
        places = [i for i, arg in enumerate(self.graph.args) if id(arg) not in mine or id(arg) in used]
        new = {old: place for place, old in enumerate(places)}
        self.captures = [(value, tensor) for value, tensor in self.captures if id(value) in used]
        self.graph.args = [self.graph.args[i] for i in places]
        self._inputs = {key: new[old] for key, old in self._inputs.items() if old in new}
        self.layouts.arguments = [self.layouts.arguments[i] for i in places]
        self.mutations = {new[old]: value for old, value in self.mutations.items()}

    def write(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Note that an argument holds ``source`` after the program."""
        self.mutations[self._inputs[id(target)]] = self.operand(source)


def _hint(number: Any, read: Any) -> Any:
    """Return what a symbol's value is, a float or an int, for a number that was read in its place."""
    if isinstance(number, torch.SymFloat):
        return float(read)
    return int(bool(read)) if isinstance(number, torch.SymBool) else int(read)

"""Reading and writing at computed places against eager: every dtype, negative, repeated and out-of-range indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Agrees = Callable[..., None]
aten: Any = torch.ops.aten
NAN, INF = float("nan"), float("inf")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64)
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=None if dtype == torch.bool else 0, high=9)


def _long(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


# A pattern says for each dim of a 4-d tensor: not indexed, or by an index tensor of one of these shapes.
patterns = st.lists(st.sampled_from([None, (), (1,), (3,), (2, 1), (2, 3), (0,)]), min_size=1, max_size=4)


def _indices(pattern: list[Any], sizes: tuple[int, ...]) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(len(pattern))
    return [
        None if shape is None else torch.randint(-size, size, shape, generator=generator)
        for shape, size in zip(pattern, sizes, strict=False)
    ]


def _fits(pattern: list[Any]) -> bool:
    try:
        torch.broadcast_shapes(*(s for s in pattern if s is not None))
    except RuntimeError:
        return False
    return any(s is not None for s in pattern)


@SETTINGS
@given(pattern=patterns.filter(_fits), accumulate=st.booleans())
def test_advanced_indexing(agrees: Agrees, pattern: list[Any], accumulate: bool) -> None:
    """Index tensors broadcast; they come first where a whole dim lies between them."""
    x = _values(4, 5, 3, 2)
    given = [i for i in _indices(pattern, x.shape) if i is not None]

    def spread(tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor | None]:
        left = iter(tensors)
        return [None if s is None else next(left) for s in pattern]

    agrees(lambda x, *i: aten.index(x, spread(i)), x, *given)
    values = _values(*aten.index(x, spread(tuple(given))).shape)
    broadcast = values[..., :1] if values.dim() else values
    for source in (values, broadcast, torch.tensor(7.0)):
        # One value for all, or of several to one place the last, or their sum: all written in row-major order.
        agrees(lambda x, v, *i: aten.index_put(x, spread(i), v, accumulate), x, source, *given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_and_put(agrees: Agrees, dtype: torch.dtype, accumulate: bool) -> None:
    x, values, at = _values(4, 3, dtype=dtype), _values(5, 3, dtype=dtype), _long(0, -1, 0, 2, 0)
    agrees(lambda x, v, i: aten.index_put(x, [i], v, accumulate), x, values, at)
    agrees(lambda x, v, i: x.put(i, v, accumulate), x, values[:, 0], _long(-12, 11, 0, 0, -1))
    mask = torch.tensor([True, False, True, True])
    agrees(lambda x, v, m: aten.index_put(x, [m], v, accumulate), x, values[:3], mask)
    agrees(lambda x, v, m: aten.index_put(x, [m], v, accumulate), x, values[0, 0], mask)
    agrees(lambda x, v, m: aten.index_put(x, [None, m], v, accumulate), x, values[0, :2], mask[:3])


@pytest.mark.few(90)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of_value", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_where_one_mask_holds_a_number_of_any_dtype_is_written(
    agrees: Agrees, dtype: torch.dtype, of_value: torch.dtype, shape: tuple[int, ...]
) -> None:
    """Eager fills, and converts; all other values have to be of the tensor's dtype."""
    x, mask, number = (
        _values(4, dtype=dtype),
        torch.tensor([True, False, True, True]),
        torch.full(shape, 3).to(of_value),
    )
    agrees(lambda x, v, m: aten.index_put(x, [m], v), x, number, mask)
    if of_value is not dtype:
        with pytest.raises(Exception, match="dtypes match"):
            compile(lambda x, v, m: aten.index_put(x, [m], v, True), (x, number, mask), "evaluator")(x, number, mask)


def test_a_mask_takes_as_many_values_as_it_has_true_elements() -> None:
    x, mask = _values(4), torch.tensor([True, False, True, True])
    put = compile(lambda x, m, v: aten.index_put(x, [m], v), (x, mask, _values(3)), "evaluator")
    fill = compile(lambda x, m, v: x.masked_scatter(m, v), (x, mask, _values(3)), "evaluator")
    assert fill(x, mask[[0, 1, 1, 1]], _values(3)).shape == (4,)
    with pytest.raises(RuntimeError, match="as many values"):
        put(x, mask[[0, 1, 1, 1]], _values(3))
    with pytest.raises(RuntimeError, match="as many values"):
        fill(x, torch.ones(4, dtype=torch.bool), _values(3))


@pytest.mark.filterwarnings("ignore:The reduce argument:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(agrees: Agrees, dtype: torch.dtype) -> None:
    """Of several to one place the last; bools add up by or and multiply by and; 16-bit floats add up in float32."""
    x, source = _values(4, 5, dtype=dtype), _values(6, 5, dtype=dtype)
    at = torch.randint(0, 4, (6, 3), generator=torch.Generator().manual_seed(1))
    agrees(lambda x, s, i: (x.gather(0, i), x.scatter(0, i, s), x.scatter(-2, i, 2)), x, source, at)
    agrees(lambda x, s, i: (x.scatter_add(0, i, s), x.scatter(0, i, s, reduce="multiply")), x, source, at)
    agrees(lambda x, i: (x.scatter(0, i, 2, reduce="add"), x.scatter(0, i, 2, reduce="multiply")), x, at.int())
    if dtype in (torch.float16, torch.bfloat16):
        ones, small = torch.ones(1, dtype=dtype), torch.full((64,), torch.finfo(dtype).eps / 2, dtype=dtype)
        assert ones.scatter_add(0, torch.zeros(64, dtype=torch.int64), small) > 1
        agrees(lambda x, s, i: x.scatter_add(0, i, s), ones, small, torch.zeros(64, dtype=torch.int64))
        agrees(lambda x, s, i: x.index_add(0, i, s), ones, small, torch.zeros(64, dtype=torch.int64))


@pytest.mark.few(44)
@pytest.mark.filterwarnings("ignore:.*is in beta:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(agrees: Agrees, dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    x, source, at = _values(5, 4, dtype=dtype), _values(6, 4, dtype=dtype), _long(0, 3, 0, 0, 3, 4)
    programs = [lambda x, s, i: x.scatter_reduce(0, i[:, None].expand(6, 4), s, reduce, include_self=include_self)]
    if reduce != "sum":
        programs.append(lambda x, s, i: x.index_reduce(0, i, s, reduce, include_self=include_self))
    for program in programs:
        try:
            program(x, source, at)
        except NotImplementedError:
            continue
        agrees(program, x, source, at)
        if dtype == torch.float32:
            agrees(program, x.clone().fill_(NAN), source, at)
            agrees(program, x, source.clone().index_fill_(0, _long(2, 4), NAN), at)
            agrees(program, -x, torch.full_like(source, -INF), at)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_slices_by_index(agrees: Agrees, dtype: torch.dtype, dim: int) -> None:
    x, at = _values(4, 5, 3, dtype=dtype), _long(2, 0, 2)
    source = _values(4, 5, 3, dtype=dtype).index_select(dim, _long(0, 1, 2))
    agrees(lambda x, s, i: (x.index_select(dim, i), x.index_copy(dim, i, s)), x, source, at)
    agrees(lambda x, i: (x.index_fill(dim, i, 3), x.index_fill(dim, -i - 1, 1), x.take(-i - 1)), x, at)
    agrees(lambda x, s, i: (x.index_add(dim, i, s), x.index_add(dim, i, s, alpha=2)), x, source, at)


def test_numbers_and_empty_tensors(agrees: Agrees) -> None:
    """A 0-d tensor has one place; where there is nothing to read or write no index is looked at."""
    x, zero, one = torch.tensor(3.0), torch.tensor(0), torch.tensor([0])
    for at in (zero, one):
        agrees(
            lambda x, i: (x.gather(0, i), x.index_select(0, i), x.take(i), x.take(i - 1), x.index_fill(0, i, 2)), x, at
        )
        agrees(lambda x, i: (x.index_add(0, i, x), x.index_copy(0, i, 2 * x), x.put(i, x.expand(i.shape) + 1)), x, at)
        agrees(lambda x, i: (x.scatter(0, i, 5.0), x.index_reduce(0, i, x, "prod")), x, at)
        agrees(lambda x, i: (x.gather(0, i), x.index_select(0, i), x.scatter_add(0, i, x)), torch.ones(3), at)
    nothing = _long()
    agrees(lambda x, i: (x[i], x.take(i), x.gather(0, i), x.index_fill(0, i, 1)), torch.ones(3), nothing)
    agrees(lambda x, i: (x.index_add(0, i, x[:0]), x.scatter(0, i, x), x.put(i, x[:0])), torch.ones(3), nothing)
    agrees(lambda x, i: (x[i], x.take(i), x.index_select(0, i)), torch.ones(0), nothing)
    agrees(lambda x, i, s: x.index_add(1, i, s, alpha=2), torch.ones(5, 0), _long(2, 0, 9), torch.ones(5, 3))
    agrees(lambda x, i: (x[i], aten.index_put(x, [i], x[:1])), torch.ones(3, 0), _long(9))


@pytest.mark.parametrize("name", ["gather", "scatter", "index_select", "index_add", "index_copy", "embedding"])
def test_negative_indices_are_refused_where_eager_refuses_them(name: str) -> None:
    programs: dict[str, Callable[..., Any]] = {
        "gather": lambda x, i: x.gather(0, i),
        "scatter": lambda x, i: x.scatter(0, i, 1.0),
        "index_select": lambda x, i: x.index_select(0, i),
        "index_add": lambda x, i: x.index_add(0, i, x[:1]),
        "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
        "embedding": lambda x, i: torch.embedding(x[:, None], i),
    }
    x = torch.arange(4.0)
    exe = compile(programs[name], (x, _long(1)), "evaluator")
    for bad in (-1, 4):
        with pytest.raises((RuntimeError, IndexError)):
            programs[name](x, _long(bad))
        with pytest.raises(RuntimeError):
            exe(x, _long(bad))
    assert torch.equal(exe(x, _long(3)), programs[name](x, _long(3)))


def test_out_of_range_is_refused_where_negative_indices_wrap() -> None:
    x = torch.arange(4.0)
    programs: list[Callable[..., Any]] = [
        lambda x, i: x[i],
        lambda x, i: aten.index_put(x, [i], x.new_ones(1)),
        lambda x, i: x.take(i),
        lambda x, i: x.put(i, x.new_ones(1)),
        lambda x, i: x.index_fill(0, i, 1),
    ]
    for program in programs:
        exe = compile(program, (x, _long(0)), "evaluator")
        for bad in (-5, 4):
            with pytest.raises((RuntimeError, IndexError)):
                program(x, _long(bad))
            with pytest.raises(RuntimeError):
                exe(x, _long(bad))
        assert torch.equal(exe(x, _long(-4)), program(x, _long(-4)))


def test_run_time_sizes() -> None:
    """Compiled at one size, run at others: bounds, wrapping and the shapes of results follow."""
    rows, count = torch.export.Dim("rows", min=2), torch.export.Dim("count", min=2)
    shapes = ({0: rows}, {0: count}, {0: count})

    def program(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> Any:
        at = i[:, None].expand(s.shape)
        return x[-i - 1], x.index_add(0, i, s), x.scatter_add(0, at, s), x.gather(0, at), aten.index_put(x, [i], s)

    x, i, s = _values(5, 3), _long(0, 4, 0), _values(3, 3)
    exe = compile(program, (x, i, s), "evaluator", dynamic_shapes=shapes)
    for n, at in ((5, _long(0, 4, 0)), (2, _long(1, 1, 0, 1)), (9, _long(8, 3))):
        inputs = _values(n, 3), at, _values(len(at), 3)
        for mine, theirs in zip(exe(*inputs), program(*inputs), strict=True):
            torch.testing.assert_close(mine, theirs)
    with pytest.raises(RuntimeError, match="out of"):
        exe(_values(5, 3), _long(5, 0, 0), s)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_and_diagonal_scatter(agrees: Agrees, dtype: torch.dtype) -> None:
    x, mask = _values(3, 4, dtype=dtype), torch.tensor([True, False, True, True])
    agrees(lambda x, m, s: x.masked_scatter(m, s), x, mask, _values(9, dtype=dtype))
    agrees(lambda x, m, s: x.masked_scatter(m, s), x, mask[:, None, None], _values(6, 9, dtype=dtype))
    for offset in (0, 1, -2, 4):
        part = _values(*x.diagonal(offset).shape, dtype=dtype)
        agrees(lambda x, s, o=offset: torch.diagonal_scatter(x, s, o), x, part)
        agrees(lambda x, s, o=offset: torch.diagonal_scatter(x, s, o, 2, 0), x.T[:, None], part[None])


def test_masked_scatter_backward(agrees: Agrees) -> None:
    """What the mask selects, then zeros."""
    mask = torch.tensor([[True, False, True, True]])
    agrees(lambda g, m: aten.masked_scatter_backward(g, m, [3, 4]), _values(3, 4), mask)
    exe = compile(lambda g, m: aten.masked_scatter_backward(g, m, [9]), (_values(3, 4), mask), "evaluator")
    with pytest.raises(RuntimeError, match="more true elements"):
        exe(_values(3, 4), torch.ones(1, 4, dtype=torch.bool))


M, N = torch.tensor([1, 0, 1]).bool(), torch.tensor([0, 1, 0, 0, 1]).bool()
PAIR, ONE = torch.tensor([0, 4]), torch.tensor([-2])
BESIDE: dict[str, tuple[list[Any], tuple[int, ...], list[tuple[int, ...]]]] = {
    # the indices of a tensor of shape [3, 5, 4] or as given, and the shapes of values to write
    "an index after it": ([M, PAIR], (3, 5), [(2,), (1,), ()]),
    "an index before it": ([PAIR, M], (5, 3), [(2,), (1,)]),
    "rows of indices": ([M, PAIR.expand(3, 2)], (3, 5, 4), [(3, 2, 4), (2, 1)]),
    "a dim between them": ([M, None, PAIR], (3, 4, 5), [(2, 4), (4,)]),
    "a dim before them": ([None, M, PAIR], (4, 3, 5), [(4, 2), (4, 1)]),
    "one index": ([M, ONE], (3, 5, 4), [(2, 4), (1, 4), (4,), ()]),
    "a column of indices": ([M, PAIR[:, None]], (3, 5), [(2, 2), (2, 1), (2,)]),
    "one index, apart": ([ONE, None, M], (5, 4, 3), [(2, 4), (4,)]),
    "a mask of two dims": ([torch.stack([M, ~M, M]), ONE], (3, 3, 4), [(5,), (1,)]),
    "another mask": ([M, N], (3, 5), []),
}


@pytest.mark.parametrize("name", BESIDE)
def test_masks_beside_other_indices(agrees: Agrees, name: str) -> None:
    indices, shape, updates = BESIDE[name]
    x, given = _values(*shape), [i for i in indices if i is not None]

    def at(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        rest = iter(tensors)
        return [None if i is None else next(rest) for i in indices]

    agrees(lambda x, *i: aten.index(x, at(i)), x, *given)
    for size in updates:
        values = _values(*size) + 1
        agrees(lambda x, v, *i: aten.index_put(x, at(i), v), x, values, *given)
        agrees(lambda x, v, *i: aten.index_put(x, at(i), v, True), x, values, *given)


def test_the_mask_beside_other_indices_may_be_another() -> None:
    x, none = _values(3, 5), torch.zeros(3).bool()
    read = compile(lambda x, m, i: x[m, i], (x, M, ONE), "linalg")
    put = compile(lambda x, m, i, v: aten.index_put(x, [m, i], v), (x, M, ONE, _values(1)), "linalg")
    for mask in (~M, M | ~M, none):
        assert torch.equal(read(x, mask, ONE), x[mask, ONE])
        assert torch.equal(put(x, mask, ONE, _values(1)), aten.index_put(x, [mask, ONE], _values(1)))
    pairs = compile(lambda x, m, i: x[m, i], (x, M, PAIR), "linalg")
    assert torch.equal(pairs(x, M.roll(1), PAIR), x[M.roll(1), PAIR])
    with pytest.raises(GuardError, match="compiled to be 2"):
        pairs(x, ~M, PAIR)

"""PyTorch's decompositions are applied where nothing else takes the op, and keep names, lines, notes and symbols."""

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Operation, parse_graph
from torchstone.compiler.ops.verifier import verify_graph
from torchstone.compiler.transforms.decompose import decompose, decompositions

LEAVES = {"aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor", "aten.exp.default"}


def keep(op: Operation) -> bool:
    return op.name in LEAVES


def test_a_decomposition_replaces_the_op_and_says_so() -> None:
    graph = parse_graph(
        "graph @f(%x: f32[2, s0], %y: f32[s0]) {\n"
        '  %0: f32[2, s0] = aten.addcmul.default(%x, %y, %x, 2) at "m.py":3:"f"\n'
        "  %1: f32[2, s0] = aten.exp.default(%0)\n  return %1\n}\n"
    )
    out, guards = decompose(graph, keep, {"s0": 5})
    verify_graph(out)
    names = [op.name for op in out.ops]
    assert set(names) <= LEAVES and names[-1] == "aten.exp.default"
    assert all(str(op.results[0].type) in ("f32[2, s0]", "f32[s0]") for op in out.ops)
    first = out.ops[0].location
    assert first.frames[0].file == "m.py" and "aten.addcmul.default" in first.notes
    assert all(guard({"s0": 9}) is None for guard in guards)


def test_a_graph_of_kept_ops_is_left_alone() -> None:
    graph = parse_graph("graph @f(%x: f32[2]) {\n  %0: f32[2] = aten.exp.default(%x)\n  return %0\n}\n")
    assert decompose(graph, keep, {})[0] is graph


def test_an_op_without_a_decomposition_stays() -> None:
    text = "graph @f(%x: f32[3]) {\n  %0: f32[3], %1: i64[3] = aten.sort.default(%x, 0, false)\n  return %0\n}\n"
    assert str(decompose(parse_graph(text), keep, {})[0]) == text


def test_a_decomposition_that_leads_back_to_its_op_is_refused_quietly() -> None:
    # PyTorch writes aten.mul in terms of prims.mul, which is aten.mul again.
    text = "graph @f(%x: f32[3]) {\n  %0: f32[3] = aten.mul.Tensor(%x, %x)\n  return %0\n}\n"
    assert str(decompose(parse_graph(text), lambda op: False, {})[0]) == text


def test_an_unknown_op_is_named() -> None:
    graph = parse_graph("graph @f(%x: f32[3]) {\n  %0: f32[3] = aten.no_such_op.default(%x)\n  return %0\n}\n")
    with pytest.raises(Unsupported, match=r"aten.no_such_op.default is no op of this PyTorch"):
        decompose(graph, keep, {})


def test_what_a_decomposition_assumes_of_a_run_time_size_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**decompositions(), torch.ops.aten.logit.default: lambda x, eps: x * 2 if x.shape[0] > 3 else x}
    monkeypatch.setattr("torchstone.compiler.transforms.decompose.decompositions", lambda: table)
    graph = parse_graph("""graph @f(%x: f32[6], %m: bool[6]) {
      %0: f32[u0] = aten.masked_select.default(%x, %m)
      %1: f32[u0] = aten.logit.default(%0, none)
      return %1
    }""")
    out, guards = decompose(graph, lambda op: op.name != "aten.logit.default", {})
    assert not guards
    assert [op.name for op in out.ops] == ["aten.masked_select.default", "flat.require", "aten.mul.Tensor"]
    assert str(out.ops[1]) == 'flat.require() {left=3, right=<u0>, relation="lt"}'


def test_a_decomposition_that_gives_another_shape_is_refused() -> None:
    graph = parse_graph(
        "graph @f(%x: f32[2, 5], %y: f32[1]) {\n  %0: f32[1] = aten.addcmul.default(%y, %x, %x, 2)\n  return %0\n}\n"
    )
    with pytest.raises(Unsupported, match=r"gives f32\[2, 5\] for f32\[1\]"):
        decompose(graph, keep, {})


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("invert", [False, True])
def test_a_search_among_elements_with_nan_finds_infinity(count: int, invert: bool) -> None:
    nan, inf = float("nan"), float("inf")
    isin = decompositions()[torch.ops.aten.isin.Tensor_Tensor]
    elements = torch.tensor([[1.0, inf, -inf], [nan, 0.0, 7.0]])
    test_elements = torch.tensor([inf, nan, 1.0, -0.0] * 10)[:count]
    wanted = torch.tensor([[count > 2, True, False], [False, count > 2, False]])
    assert torch.equal(isin(elements, test_elements, invert=invert), wanted ^ invert)


def test_places_from_the_end_are_counted_back_under_a_mask() -> None:
    """As eager does. PyTorch's own decomposition takes the first place for each of them."""
    x, fill = torch.arange(20.0).reshape(4, 5), 7.0
    mask = torch.tensor([[True, True, False], [True, True, True]])
    indices = [torch.tensor([[-1], [2]]), torch.tensor([-5, 4, -2])]
    masked_index = decompositions()[torch.ops.aten._unsafe_masked_index.default]
    wanted = x[tuple(indices)].masked_fill(~mask, fill)
    assert torch.equal(masked_index(x, mask, list(indices), fill), wanted)
    assert torch.equal(torch.ops.aten._unsafe_masked_index(x, mask, list(indices), fill), wanted)
    none_in_front = masked_index(x, mask[0], [None, torch.tensor([-1, 0, 9])], fill)
    assert torch.equal(
        none_in_front, torch.tensor([4.0, 0.0, fill]) + torch.tensor([5.0, 5.0, 0.0]) * torch.arange(4)[:, None]
    )

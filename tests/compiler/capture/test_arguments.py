"""What goes in and comes out besides fresh tensors: aliases, writes, containers, ints, modules."""

import collections
import dataclasses

import pytest
import torch
from torch import nn
from torch.export import Dim

from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float


torch.export.register_dataclass(Batch)


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


FRONTENDS = {"dispatch": None, "export": ({0: Dim("n", min=4, max=64)},)}


@pytest.mark.parametrize("dynamic", FRONTENDS.values(), ids=FRONTENDS)
def test_a_result_that_is_an_argument_is_that_very_tensor(dynamic) -> None:
    x = torch.randn(4, 3)
    out, doubled = compile(lambda x: (x, x * 2), (x,), "evaluator", dynamic)(x)
    assert out is x
    assert torch.equal(doubled, x * 2) and not same_memory(doubled, x)


VIEWS = {
    "t": lambda x: x.t(),
    "chain": lambda x: x[1:].unsqueeze(0).transpose(1, 2)[..., ::2],
    "unbind": lambda x: x.unbind(1)[1],
    "expand": lambda x: x[:, None].expand(-1, 5, -1),
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2, 1)[1],
    "diagonal": lambda x: x.diagonal(),
}


@pytest.mark.few(11)
@pytest.mark.parametrize("dynamic", FRONTENDS.values(), ids=FRONTENDS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_an_argument_is_one_of_whatever_strides(name: str, dynamic) -> None:
    view = VIEWS[name]
    exe = compile(view, (torch.randn(4, 3),), "evaluator", dynamic)
    for rows in (4,) if dynamic is None else (4, 6):
        for x in (torch.randn(rows, 3), torch.randn(3, rows).t(), torch.randn(2 * rows, 9)[::2, 1:7:2]):
            out, expected = exe(x), view(x)
            assert torch.equal(out, expected) and same_memory(out, x)
            assert out.stride() == expected.stride() and out.storage_offset() == expected.storage_offset()


@pytest.mark.few(2)
@pytest.mark.parametrize("dynamic", FRONTENDS.values(), ids=FRONTENDS)
@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_results_share_memory_with_each_other_as_in_eager(target: str, dynamic) -> None:
    def program(x):
        y = x * 2
        z = x + 1
        z[1:].mul_(y[1:])
        return y, y, y[0], y.t()[1:], y.reshape(-1), z[:, 1], z, y.amax(), z.unbind(1)[1][None], y * 1

    x = torch.randn(4, 3)
    exe = compile(program, (x,), target, dynamic)
    for rows in (4,) if dynamic is None else (4, 6):
        x = torch.randn(rows, 3)
        out, expected = exe(x), program(x)
        assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))
        shared = [[same_memory(a, b) for b in out] for a in out]
        wanted = [[same_memory(a, b) for b in expected] for a in expected]
        assert out[0] is out[1]
        assert [out[i].stride() for i in (2, 3, 5, 8)] == [expected[i].stride() for i in (2, 3, 5, 8)]
        for rows_ in (shared, wanted):  # reshape may copy: what it gives is not compared
            for row in rows_:
                row[4] = False
            rows_[4] = []
        assert shared == wanted
        out[2].fill_(7.0)
        assert (out[0][0] == 7).all() and not (out[9][0] == 7).all()


def test_every_result_is_computed_when_asked_for() -> None:
    x = torch.randn(4, 3)
    exe = compile(lambda x: (x, x.t()), (x,), "evaluator", alias_results=False)
    one, two = exe(x)
    assert torch.equal(one, x) and torch.equal(two, x.t())
    assert not same_memory(one, x) and not same_memory(two, x)
    assert "flat.transpose" in exe.ir["flat"]


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_writes_through_views_reach_the_argument_and_results_share_its_memory(target: str) -> None:
    def program(x):
        rows = x.view(-1)[2:8]
        rows.mul_(10)
        x[0].add_(x[1])
        return rows, x.t(), x, x * 1

    one, two = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)
    exe = compile(program, (one.clone(),), target)
    got, expected = exe(one), program(two)
    assert torch.equal(one, two)
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()
        assert same_memory(mine, one) == same_memory(theirs, two)
    assert got[2] is one


def test_a_write_that_another_argument_would_see_is_guarded() -> None:
    def program(x, y):
        x.add_(1)
        return y * 2

    exe = compile(program, (torch.zeros(4), torch.zeros(4)), "evaluator")
    base = torch.arange(8.0)
    torch.testing.assert_close(exe(base[:4], base[4:]), base[4:] * 2)
    with pytest.raises(GuardError, match="share memory"):
        exe(base[:4], base[2:6])


def test_a_write_to_elements_that_are_one_in_memory_is_guarded() -> None:
    exe = compile(lambda x: x.add_(1), (torch.zeros(4),), "evaluator")
    assert exe(torch.zeros(4)).tolist() == [1, 1, 1, 1]
    with pytest.raises(GuardError, match="elements are one in memory"):
        exe(torch.zeros(1).expand(4))


def test_examples_that_share_what_is_written_to_are_refused_when_compiling() -> None:
    def program(x, y):
        x[0].fill_(1)
        return y * 2

    base = torch.zeros(8)
    for args, why in [((base[:1].expand(4), base[4:]), "one in memory"), ((base[:4], base[2:6]), "share memory")]:
        with pytest.raises(Unsupported, match=why):
            compile(program, args, "evaluator")


@pytest.mark.parametrize(
    ("program", "outs"),
    [
        (lambda x, out: torch.amax(x, dim=0, out=out), [torch.zeros(4, dtype=torch.int32)]),
        (lambda x, *outs: torch.aminmax(x, dim=0, out=outs), [torch.zeros(4), torch.zeros(4, dtype=torch.float64)]),
        (lambda x: torch.cat((x[:0], x), out=x), []),
        (lambda x, place: torch.kthvalue(x[0], 2, out=(x[0], place)), [torch.tensor(0)]),
    ],
)
def test_what_eager_refuses_to_write_to_is_refused_and_nothing_is_written(program, outs) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for run in (program, lambda *args: compile(program, args, "evaluator")):
        with pytest.raises(RuntimeError, match=r"out|single memory location"):
            run(x, *outs)
    assert torch.equal(x, torch.arange(12.0).reshape(3, 4)) and not any(out.any() for out in outs)


def test_a_program_that_writes_is_compiled_without_a_trace() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x, out):
            self.seen.add_(1)
            return torch.add(x, torch.rand(3), out=out)

    model, x, out = Counts(), torch.ones(3), torch.zeros(3)
    state = torch.get_rng_state()
    compile(model, (x, out), "evaluator")
    assert model.seen == 0 and not out.any() and torch.equal(torch.get_rng_state(), state)


def test_one_tensor_twice() -> None:
    def program(x, y):
        x.add_(1)
        return y * 2

    x = torch.ones(3)
    exe = compile(program, (x, x), "evaluator")
    assert exe(x, x).tolist() == [4, 4, 4] and x.tolist() == [2, 2, 2]
    with pytest.raises(GuardError, match="arguments 0 and 1 were one tensor"):
        exe(x, torch.ones(3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_keyword_arguments_and_containers(dynamic: bool) -> None:
    def program(batch, *, pair, options):
        a = batch.x * batch.scale
        return Pair(a + pair.first, {"none": None, "list": [options["shift"] + pair.second, "text"]})

    def arguments(n):
        pair = Pair(torch.randn(n, 3), torch.randn(n, 3))
        return (Batch(torch.randn(n, 3), 2.5),), {"options": {"shift": torch.ones(3)}, "pair": pair}

    n = Dim("n", min=2, max=64)
    shapes = {"batch": [{0: n}, None], "pair": Pair({0: n}, {0: n}), "options": {"shift": None}} if dynamic else None
    args, kwargs = arguments(4)
    exe = compile(program, args, "evaluator", shapes, kwargs=kwargs)
    for size in (4, 7) if dynamic else (4,):
        args, kwargs = arguments(size)
        got, expected = exe(*args, **dict(reversed(kwargs.items()))), program(*args, **kwargs)
        torch.testing.assert_close(got.first, expected.first)
        torch.testing.assert_close(got.second["list"][0], expected.second["list"][0])
    assert isinstance(got, Pair) and got.second["none"] is None and got.second["list"][1] == "text"
    with pytest.raises(GuardError, match="compiled for a call like"):
        exe(*args, pair=kwargs["pair"])


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_ints_compile_once_and_run_with_others(target: str) -> None:
    def program(x, n, k):
        return x[:, :n] * k + torch.arange(n), n + 2 * k, x.new_full((k,), 1.5)

    exe = compile(program, (torch.randn(2, 9), 3, 4), target, (None, Dim.DYNAMIC, Dim.DYNAMIC))
    assert "int" in exe.ir["aten"] and "flat.bind" in exe.ir["aten"]
    for n, k in ((3, 4), (5, 2), (8, 7)):
        x = torch.randn(2, 9)
        got, expected = exe(x, n, k), program(x, n, k)
        torch.testing.assert_close(got[0], expected[0])
        torch.testing.assert_close(got[2], expected[2])
        assert got[1] == expected[1] and type(got[1]) is int
    for wrong in (2.0, True, torch.tensor(3)):
        with pytest.raises(GuardError, match="argument 1 was an int"):
            exe(x, wrong, 4)
    with pytest.raises(GuardError):
        exe(x, -1, 4)


def test_what_python_decided_by_a_number_is_guarded() -> None:
    def program(x, flag, n):
        return x + 1 if flag else x[:n]

    exe = compile(program, (torch.ones(4), False, 2), "evaluator")
    assert exe(torch.ones(4), False, 2).shape == (2,)
    for flag, n in ((True, 2), (False, 3), (0, 2)):
        with pytest.raises(GuardError, match="part of the program"):
            exe(torch.ones(4), flag, n)


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("history", torch.zeros(2, 3), persistent=False)

    def forward(self, x):
        self.count += 1
        self.history[0].copy_(x.mean(0))
        return self.last(torch.relu(self.first(self.norm(x)))) + self.history.sum(), self.count, self.history[0]


@pytest.mark.parametrize("dynamic", FRONTENDS.values(), ids=FRONTENDS)
def test_buffers_tied_weights_and_training_mode(dynamic) -> None:
    torch.manual_seed(0)
    module, reference = Stateful(), Stateful()
    reference.load_state_dict(module.state_dict())
    exe = compile(module, (torch.randn(4, 3),), "evaluator", dynamic)
    assert module.count == 0 and torch.equal(module.history, torch.zeros(2, 3))
    for _ in range(3):
        x = torch.randn(4, 3)
        with torch.no_grad():
            torch.testing.assert_close(exe(x), reference(x))
        torch.testing.assert_close(dict(module.named_buffers()), dict(reference.named_buffers()))
    module.eval()
    with pytest.raises(GuardError, match="was in training mode"):
        exe(x)


def test_a_module_closed_over_is_updated_too() -> None:
    norm = nn.BatchNorm1d(3)
    exe = compile(lambda x: norm(x) * 2, (torch.randn(4, 3),), "evaluator")
    assert norm.num_batches_tracked == 0
    exe(torch.randn(4, 3))
    assert norm.num_batches_tracked == 1 and norm.running_mean.any()


def test_an_argument_whose_sizes_change_in_place_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"aten.t_.default changes the sizes or strides") as caught:
        compile(lambda x: x.t_().add_(1), (torch.randn(2, 3),), "evaluator")
    assert "test_arguments.py" in str(caught.value)


def test_an_op_that_resizes_what_it_writes_to_is_refused() -> None:
    """``addbmm_`` takes an operand that broadcasts; eager refuses one that does not, and so does a capture."""
    batch = torch.ones(2, 3, 3)
    assert torch.ones(1).addbmm_(batch, batch).shape == (3, 3)
    with pytest.raises(Unsupported, match=r"aten.addbmm_.default gives the tensor that it writes to other sizes"):
        compile(lambda x, y: x.addbmm_(y, y), (torch.ones(1), batch), "evaluator")
    with pytest.raises(RuntimeError, match=r"expand|broadcast|match"):
        compile(lambda x, y: x.addbmm_(y, y), (torch.ones(2), batch), "evaluator")


@pytest.mark.parametrize("dynamic_shapes", [None, ({0: torch.export.Dim.AUTO},)], ids=["static", "dynamic"])
def test_other_memory_for_a_tensor_is_refused(dynamic_shapes: object) -> None:
    def data(x: torch.Tensor) -> torch.Tensor:
        x.data = x + 1
        return x

    def of_a_result(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        y.data = x + 1
        return y

    for fn in (data, of_a_result, lambda x: x.set_(x + 1), lambda x: torch.utils.swap_tensors(x, x * 2)):
        with pytest.raises(Unsupported, match=r"data of a tensor|other memory|set_"):
            compile(fn, (torch.randn(2, 3),), "evaluator", dynamic_shapes=dynamic_shapes)


def test_results_take_no_part_in_autograd() -> None:
    x = torch.randn(3, requires_grad=True)
    assert not compile(lambda x: x * 2, (x,), "evaluator")(x).requires_grad
    with torch.no_grad():
        assert torch.equal(compile(lambda x: x * 2, (x,), "evaluator")(x), x * 2)

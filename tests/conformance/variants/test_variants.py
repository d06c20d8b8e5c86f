"""Variants: the same question asked in another way, and an honest no where it cannot be."""

from __future__ import annotations

import logging

import pytest
import torch
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.sources import find_case, iterate
from torchstone.conformance.variants import long_dim as long_dims
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.dynamic import plan
from torchstone.conformance.variants.long_dim import LENGTH
from torchstone.conformance.variants.registry import VARIANTS

pytestmark = pytest.mark.usefixtures("no_forks")

LAYOUTS = ("strided", "transposed", "offset", "channels_last")


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int8, torch.bool])
def test_a_layout_keeps_the_values(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(48).remainder(5).to(dtype).reshape(2, 3, 2, 4)
    changed = asked(case("torch.Tensor.flatten", x), name)
    (y,) = changed.args
    assert torch.equal(x, y) and (y.stride() != x.stride() or y.storage_offset())
    assert changed.id == f"test:op:float32:0:{name}"
    assert Case.from_bytes(changed.to_bytes()).args[0].stride() == y.stride()


def test_rows() -> None:
    pair = case("torch.add", torch.ones(4, 3), torch.ones(4, 1))
    assert [tuple(t.shape) for t in asked(pair, "empty").args] == [(0, 3), (0, 1), (4, 0), (4, 0)]
    assert [t.shape[0] for t in asked(pair, "single").args] == [1, 1]
    assert [t.dim() for t in asked(pair, "scalar").args] == [0, 0]


def test_what_eager_would_read_beyond_is_no_case() -> None:
    lengths = torch.tensor([2, 1, 0, 3])
    program = Program(
        ("x0", "x1"),
        (Call("torch.segment_reduce", (Ref("x0"), "max"), {"lengths": Ref("x1"), "unsafe": True}, "r0"),),
        Ref("r0"),
    )
    cut = apply(Case(program, {"x0": torch.randn(6), "x1": lengths}, "test", "op", "float32"), "single")
    assert isinstance(cut, Untested) and "beyond the data" in cut.reason
    lu, pivots = torch.linalg.lu_factor(torch.randn(3, 4, 4))
    for name, rows in (("empty", 0), ("single", 1)):  # pivots are cut too: eager would take others from beyond
        assert [t.shape[0] for t in asked(case("torch.lu_unpack", lu, pivots), name).args[:2]] == [rows, rows]
    wrong = apply(case("torch.lu_unpack", lu, pivots + 9), "single")
    assert isinstance(wrong, Untested) and "pivots" in wrong.reason
    loss = case("torch.nn.functional.multi_margin_loss", torch.randn(5, 3), torch.zeros(5, dtype=torch.int64))
    nothing = apply(loss, "empty")
    assert isinstance(nothing, Untested) and "nobody wrote" in nothing.reason


def test_what_eager_would_do_in_some_order_is_no_case() -> None:
    def norm(**kwargs: bool) -> Case:
        call = Call("torch.nn.functional.batch_norm", tuple(Ref(f"x{i}") for i in range(3)), kwargs, "r0")
        inputs = {"x0": torch.randn(4, 3), "x1": torch.zeros(3), "x2": torch.ones(3)}
        return Case(Program(tuple(inputs), (call,), Ref("r0")), inputs, "test", "op", "float32")

    written = apply(norm(training=True), "expanded")
    assert isinstance(written, Untested) and "one in memory" in written.reason
    assert asked(norm(training=False), "expanded").args[1].stride() == (0,)


@pytest.mark.parametrize("name", ["native_batch_norm", "_batch_norm_with_update", "_batch_norm_no_update"])
def test_norms_with_fewer_parameters_than_channels_are_no_case(name: str) -> None:
    rest = (True, 0.1, 1e-5) if name == "native_batch_norm" else (0.1, 1e-5)
    call = Call(f"torch.ops.aten.{name}.default", (*(Ref(f"x{i}") for i in range(5)), *rest), {}, "r0")
    inputs = {"x0": torch.randn(4, 3)} | {f"x{i}": torch.ones(3) for i in range(1, 5)}
    whole = Case(Program(tuple(inputs), (call,), Ref("r0")), inputs, "test", "op", "float32")
    assert not undefined_behavior(whole)
    assert "as many elements as there are channels" in undefined_behavior(
        whole.replace(inputs={**inputs, "x3": torch.ones(2)})
    )


def test_parameters_of_another_size_than_eagers_lstm_takes_them_for_are_no_case() -> None:
    state, weights = [torch.zeros(1, 2, 3)] * 2, [torch.randn(12, 4), torch.randn(12, 3)]
    refs = [Ref(f"x{i}") for i in range(5)]
    call = Call("torch.lstm", (refs[0], refs[1:3], refs[3:], False, 1, 0.0, False, False, False), {}, "r0")
    inputs = {f"x{i}": t for i, t in enumerate([torch.randn(5, 2, 4), *state, *weights])}
    lstm = Case(Program(tuple(inputs), (call,), Ref("r0")), inputs, "test", "op", "float32")
    assert not undefined_behavior(lstm)
    assert "sizes that PyTorch's own refuses" in undefined_behavior(
        lstm.replace(inputs={**inputs, "x3": torch.randn(13, 5)})
    )
    assert "sizes that PyTorch's own refuses" in undefined_behavior(
        lstm.replace(inputs={**inputs, "x1": torch.zeros(1, 7, 3)})
    )
    assert "cell states" in undefined_behavior(lstm.replace(inputs={**inputs, "x1": torch.zeros(500, 2, 3)}))


@pytest.mark.parametrize("target", ["torch.histogram", "torch.histc"])
def test_places_that_eager_takes_from_nan_are_no_case(target: str) -> None:
    assert "NaN or infinity" in undefined_behavior(case(target, torch.tensor([3e38, 3e38]), args=(2,)))
    assert "NaN or infinity" in undefined_behavior(case(target, torch.tensor([-3e38, 0, 3e38]), args=(2,)))
    assert not undefined_behavior(case(target, torch.tensor([1.0, 2.0, 2.0]), args=(2,)))
    assert not undefined_behavior(case(target, torch.tensor([2.0, 2.0]), args=(2,)))


def test_rows_are_told_from_channels() -> None:
    norm = case("torch.nn.functional.batch_norm", torch.randn(5, 5, 2), torch.zeros(5), torch.ones(5))
    assert [list(t.shape) for t in asked(norm, "single").args] == [[1, 5, 2], [5], [5]]
    loss = case("torch.nn.functional.nll_loss", torch.randn(5, 3), torch.zeros(5, dtype=torch.int64))
    assert [list(t.shape) for t in asked(loss, "single").args] == [[1, 3], [1]]


def test_gradients_are_those_of_autograd() -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 2)
    changed = asked(case("torch.mm", x, w), "backward")
    result, (dx, dw) = changed.program(*changed.fresh_args())
    cotangent = changed.inputs["cotangent0"]
    torch.testing.assert_close((result, dx, dw), (x @ w, cotangent @ w.T, x.T @ cotangent))
    assert not result.requires_grad


def test_several_results_and_inputs_without_gradients() -> None:
    changed = asked(case("torch.sort", torch.randn(5)), "backward")
    assert [name for name in changed.inputs if name.startswith("cotangent")] == ["cotangent0"]
    values, gradients, places = changed.program(*changed.fresh_args())
    assert torch.equal(changed.inputs["x0"][places], values) and len(gradients) == 1
    mean, x = torch.zeros(3), torch.randn(2, 3)
    norm = asked(case("torch.nn.functional.batch_norm", x, mean, torch.ones(3), args=(None, None, True)), "backward")
    _, gradients = norm.program(*norm.fresh_args())
    assert len(gradients) == 1 and gradients[0].shape == x.shape


@pytest.mark.parametrize(
    "name, given, reason",
    [
        ("transposed", case("torch.neg", torch.ones(3)), "two dims"),
        ("special", case("torch.neg", torch.ones(3, dtype=torch.int32)), "no input of floats"),
        ("backward", case("torch.neg", torch.ones(3, dtype=torch.int32)), "differentiable"),
        ("backward", case("torch.floor_divide", torch.ones(3), torch.ones(3)), "derivative"),
        ("empty", case("torch.amax", torch.ones(3)), "eager raises RuntimeError: amax()"),
    ],
)
def test_what_cannot_be_asked_says_why(name: str, given: Case, reason: str) -> None:
    found = apply(given, name)
    assert isinstance(found, Untested) and reason in found.reason and found.variant == name


@pytest.mark.parametrize(
    "name, given, reason",
    [
        ("scalar", case("torch.mm", torch.ones(3, 3), torch.ones(3, 3)), "eager raises RuntimeError"),
        ("special", case("torch.linalg.cholesky", torch.ones(3, 3)), "is not finite"),
    ],
)
def test_what_could_end_the_process_is_left_to_the_worker(name: str, given: Case, reason: str) -> None:
    verdict = run_case(asked(given, name), load("linalg"))
    assert verdict.outcome == "untested" and reason in verdict.message


def test_other_sizes_keep_what_was_equal_equal() -> None:
    given = asked(case("torch.mm", torch.randn(3, 4), torch.randn(4, 3)), "dynamic")
    varying = plan(given)
    assert varying is not None and varying.dims == ((0, 1), (0, 1))
    assert [tuple(t.shape) for other in varying.others for t in other.args] == [
        (4, 5), (5, 4), (7, 8), (8, 7), (2, 3), (3, 2),
    ]  # fmt: skip
    assert given.args[0].shape == (3, 4)


@pytest.mark.torture
def test_every_other_sample_is_asked_with_gradients_at_other_sizes() -> None:
    given = case("torch.nn.functional.avg_pool2d", torch.randn(1, 2, 9, 9), args=(3, 1))
    assert not asked(given, "dynamic").program.differentiates
    with_gradients = asked(given.replace(index=1), "dynamic")
    assert with_gradients.program.differentiates
    varying = plan(with_gradients)
    assert varying is not None and [other.args[0].shape[-1] for other in varying.others] == [10, 13, 8]
    assert run_case(with_gradients, load("linalg")).outcome == "pass"
    doubled = asked(case("torch.tile", torch.randn(3), args=((2,),)).replace(index=1), "dynamic")
    assert doubled.program.differentiates, "the gradient that comes in grows by twice as much"
    windows = case("torch.nn.functional.unfold", torch.randn(1, 2, 6, 5), args=(2, 1, 1, 2)).replace(index=1)
    assert run_case(asked(windows, "dynamic"), load("linalg")).outcome == "pass"


class Lenient:
    """Takes as many rows as columns, and drops what is too much; raises where there is more than it can take."""

    name = "lenient"

    def __init__(self, most: int) -> None:
        self.most = most

    def compile_dynamic(self, fn, args, dims):
        def run(x, y):
            if x.numel() > self.most:
                raise ValueError("too many")
            size = min(x.shape[1], y.shape[0])
            return x[:, :size] @ y[:size]

        return run


def test_sizes_that_do_not_go_together_have_to_be_refused() -> None:
    given = asked(case("torch.mm", torch.randn(3, 4), torch.randn(4, 2)), "dynamic")
    assert run_case(given, load("linalg")).outcome == "pass"
    verdict = run_case(given, Lenient(1 << 30))
    assert (verdict.outcome, verdict.kind) == ("mismatch", "accepted")
    assert verdict.message.startswith("called with sizes [3, 5], [4, 2]: gives a result, where eager raises")


def test_every_fourth_sample_is_called_with_millions_of_elements() -> None:
    given = asked(case("torch.mm", torch.randn(3, 4), torch.randn(4, 2)).replace(index=2), "dynamic")
    verdict = run_case(given, Lenient(1 << 20))
    assert verdict.outcome == "error" and verdict.message.startswith("called with sizes [786432, 4], [4, 2]")


def test_a_quarter_million_elements() -> None:
    grown = asked(case("torch.nn.functional.layer_norm", torch.randn(4, 3), args=((3,),)), "huge")
    assert grown.args[0].shape == (521, 521) and grown.program.calls[0].args[1] == (521,)
    cube = apply(case("torch.outer", torch.randn(5), torch.randn(5)), "huge")
    assert isinstance(cube, Untested) and "no such sizes" in cube.reason
    product = apply(case("torch.matmul", *(torch.randn(2, 3, 2, 2) for _ in range(2))), "huge")
    assert isinstance(product, Case)


def test_places_are_asked_in_32_bits_together() -> None:
    """Offsets have the dtype of indices: one of them alone in another is refused."""
    call = Call("torch.nn.functional.embedding_bag", (Ref("i"), Ref("x"), Ref("o")), {}, "r")
    inputs = {"i": torch.tensor([1, 0, 2]), "x": torch.randn(3, 2), "o": torch.tensor([0, 2])}
    found = asked(Case(Program(("i", "x", "o"), (call,), Ref("r")), inputs, "test", "op", "float32"), "mixed")
    assert [tensor.dtype for tensor in found.args[:3]] == [torch.int32, torch.float32, torch.int32]


def test_an_operand_alone_may_be_longer() -> None:
    program = Program(("x", "at"), (Call("torch.gather", (Ref("x"), 0, Ref("at")), {}, "r"),), Ref("r"))
    inputs = {"x": torch.randn(4, 3), "at": torch.zeros(2, 3, dtype=torch.int64)}
    found = asked(Case(program, inputs, "test", "op", "float32"), "smaller")
    assert (6, 3) in {tuple(tensor.shape) for tensor in found.args}


def test_the_leading_size_alone() -> None:
    given = asked(case("torch.add", torch.randn(3, 4), torch.randn(3, 1)), "batch")
    varying = plan(given)
    assert varying is not None and varying.dims == ((0,), (0,))
    found = apply(case("torch.mm", torch.randn(3, 4), torch.randn(4, 2)).replace(variant="batch"), "batch")
    assert isinstance(found, Case)
    fixed = apply(case("torch.Tensor.view", torch.randn(6), args=(2, 3)), "dynamic")
    assert isinstance(fixed, Untested) and fixed.reason == "eager takes no other size"


class Fixed:
    """Compiles for the sizes it is given, and does not say so."""

    name = "fixed"

    def compile_dynamic(self, fn, args, dims):
        rows = args[0].shape[0]
        return lambda x: fn(x[:rows])


@pytest.mark.parametrize(
    "backend, outcome",
    [(load("eager"), "pass"), (load("linalg"), "pass"), (Fixed(), "mismatch")],
    ids=["eager", "linalg", "fixed"],
)
def test_one_compilation_serves_all_sizes(backend, outcome: str) -> None:
    given = asked(case("torch.softmax", torch.randn(3, 4), args=(-1,)), "batch")
    verdict = run_case(given, backend)
    assert verdict.outcome == outcome
    if outcome == "mismatch":
        assert verdict.message.startswith("called with sizes [4, 4]")


def test_sizes_at_which_eager_reads_beyond_its_inputs_are_left_out() -> None:
    call = Call("torch.segment_reduce", (Ref("x"), "sum"), {"lengths": Ref("n"), "unsafe": True}, "r")
    inputs = {"x": torch.arange(5.0), "n": torch.tensor([2, 1, 2])}
    planned = plan(asked(Case(Program(("x", "n"), (call,), Ref("r")), inputs, "test", "op", "float32"), "dynamic"))
    assert planned is not None
    assert [[*map(len, other.args)] for other in planned.others] == [[4, 2]]


def test_inputs_that_share_memory_stay_together() -> None:
    x = torch.ones(4, 4)
    found = apply(case("torch.add", x, x[1:2]), "strided")
    assert isinstance(found, Untested) and "share memory" in found.reason


def test_ids_name_the_variant() -> None:
    found = find_case("opinfo:softmax:float32:1:transposed")
    (same,) = [
        entry
        for entry in iterate({"opinfo": ["softmax"]}, ["float32"], 2, ["transposed"])
        if isinstance(entry, Case) and entry.id == found.id
    ]
    assert same.to_bytes() == found.to_bytes()
    with pytest.raises(UnknownName, match='did you mean "transposed"'):
        find_case("opinfo:softmax:float32:1:transpose")
    with pytest.raises(InputError, match="no such input"):
        find_case("opinfo:softmax:float32:0:channels_last")
    assert all(VARIANTS.load(name).doc.endswith(".") for name in VARIANTS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_small_numbers_are_lost_beside_one_and_next_to_it(dtype: torch.dtype) -> None:
    (y,) = asked(case("torch.log1p", torch.full((60,), 3.0, dtype=dtype)), "small").args
    real = torch.view_as_real(y) if dtype.is_complex else y
    changed = real[(real != 3) & (real != 0)]
    lost = (changed + 1 == 1) & (changed != 0)
    assert lost.any() and (changed < 0).any() and ((changed - 1).abs() <= torch.finfo(dtype).eps).any()
    assert isinstance(apply(case("torch.neg", torch.ones(3, dtype=torch.int32)), "small"), Untested)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int8, torch.int64, torch.uint8]
)
def test_extremes_are_finite_and_at_the_ends(dtype: torch.dtype) -> None:
    (y,) = asked(case("torch.neg", torch.ones(30, dtype=dtype)), "extremes").args
    parts = torch.view_as_real(y) if y.is_complex() else y
    info = torch.finfo(dtype) if y.is_floating_point() or y.is_complex() else torch.iinfo(dtype)
    assert parts.isfinite().all() and parts.max() == info.max and parts.min() == info.min
    assert (parts == 1).any()
    assert isinstance(apply(case("torch.logical_not", torch.ones(3, dtype=torch.bool)), "extremes"), Untested)


def test_expanded_rows_are_one_in_memory() -> None:
    (y,) = asked(case("torch.neg", torch.randn(4, 3)), "expanded").args
    assert y.shape == (4, 3) and y.stride() == (0, 1) and torch.equal(y[0], y[3])
    assert Case.from_bytes(asked(case("torch.neg", y), "offset").to_bytes()).args[0].shape == (4, 3)
    assert isinstance(apply(case("torch.Tensor.add_", torch.randn(4, 3), args=(1,)), "expanded"), Untested)


def test_odd_sizes_fit_each_other() -> None:
    product = asked(case("torch.matmul", torch.randn(4, 8), torch.randn(8, 5)), "odd")
    assert [list(t.shape) for t in product.args] == [[5, 9], [9, 7]]
    kept = apply(case("torch.Tensor.view", torch.randn(4, 6), args=(2, 12)), "odd")
    assert isinstance(kept, Untested) and "eager raises" in kept.reason


def test_the_dim_that_is_summed_or_scanned_is_made_long() -> None:
    x = torch.randn(5, 5, 5)
    for target, dim in (("torch.sum", 1), ("torch.cumsum", 0), ("torch.softmax", 2)):
        (y,) = asked(case(target, x, args=(dim,)), "long").args
        assert y.shape[dim] == LENGTH and y.numel() == 25 * LENGTH
    assert [list(t.shape) for t in asked(case("torch.mm", torch.randn(3, 8), torch.randn(8, 5)), "long").args] == [
        [3, LENGTH],
        [LENGTH, 5],
    ]
    norm = asked(case("torch.nn.functional.layer_norm", torch.randn(4, 2, 3), args=((2, 3),)), "long")
    assert norm.args[0].shape == (4, LENGTH, 3) and norm.program.calls[0].args[1] == (LENGTH, 3)
    neg = asked(case("torch.neg", torch.randn(64, 64)), "long")
    assert sorted(neg.args[0].shape) == [2, LENGTH], "the other size is cut"
    cube = case("torch.expand_copy", torch.randn(5, 1, 1), args=((5, 5, 5),))
    assert isinstance(apply(cube, "long"), Untested), "a cube of that length has 34 GB"


def test_a_list_of_sizes_that_were_strides_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager would be at it for minutes: 2,053 in the place of both strides of an image of 9 by 9."""
    told: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "handle", told.append)
    image, kernel = torch.randn(1, 2, 9, 9), torch.randn(2, 2, 2, 2)
    for stride, fits in ((2, True), (LENGTH, False)):
        assert long_dims.fits(case("torch.conv_transpose2d", image, kernel, args=(None, (stride, stride)))) is fits
    assert long_dims.fits(case("torch.mm", torch.randn(2, 3), torch.randn(2, 3))), "eager says what is wrong with it"
    assert not told


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_shifted_numbers_keep_half_their_digits(dtype: torch.dtype) -> None:
    x = torch.randn(30, dtype=dtype)
    (y,) = asked(case("torch.var", x), "shifted").args
    shift = (y.real.double() - x.real.double()).mean()
    assert shift > 8 * x.abs().max() and y.real.double().var() > 0.3 * x.real.double().var()


def operand_dtypes(mixed: Case) -> list[tuple[str, ...]]:
    """Of each call of a program, the dtypes of the tensors that it reads."""
    return [tuple(str(mixed.inputs[ref.name].dtype)[6:] for ref in call.refs()) for call in mixed.program.calls]


def test_operands_are_mixed_where_eager_takes_that() -> None:
    pair = case("torch.lt", torch.tensor([1, 2, 3]), torch.tensor([2, 2, 2]))
    found = [operand_dtypes(asked(pair.replace(index=i), "mixed")) for i in range(7)]
    assert all(kinds[:2] == [("float32", "int64"), ("int64", "float32")] and len(kinds) == 4 for kinds in found)
    others = {kind for kinds in found for kind in kinds[2:]}
    assert {("int64",), ("int16", "int64"), ("int64", "bool"), ("float16", "int64")} <= others and len(others) > 8
    power = asked(case("torch.ldexp", torch.randn(3), torch.randn(3)), "mixed")
    assert ("float32", "int32") in operand_dtypes(power), "which is computed otherwise than a float by a float"
    assert isinstance(apply(case("torch.mm", torch.randn(2, 2), torch.randn(2, 2)), "mixed"), Untested)
    scaled = asked(case("torch.add", torch.tensor([1, 2]), args=(3,)), "mixed")
    assert torch.equal(scaled.program(*scaled.args), torch.tensor([4.5, 5.5]))
    halves = asked(pair, "mixed").args[0]
    assert halves.is_floating_point() and not torch.equal(halves, halves.trunc())


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_lazy_inputs_have_the_same_values_and_are_views(dtype: torch.dtype) -> None:
    x = torch.arange(6).sub(3).to(dtype)
    lazy = asked(case("torch.abs", x), "lazy")
    (y,) = lazy.args
    assert torch.equal(x, y) and (y.is_conj() if dtype.is_complex else y.is_neg())
    assert Case.from_bytes(lazy.to_bytes()).args[0].is_neg() == y.is_neg()
    assert isinstance(apply(case("torch.neg", torch.ones(2, dtype=torch.uint8)), "lazy"), Untested)
    raw = apply(case("torch.nn.functional.max_pool1d", torch.randn(1, 3, 8), args=(2,)), "lazy")
    assert isinstance(raw, Untested) and "as it is" in raw.reason


class Forgetful:
    """Keeps what it compiled by the names of the calls alone."""

    name = "forgetful"

    def __init__(self):
        self.kept = {}

    def compile(self, fn, args):
        return self.kept.setdefault(tuple(call.target for call in fn.calls), fn)


@pytest.mark.parametrize("backend, outcome", [(load("linalg"), "pass"), (Forgetful(), "mismatch")])
def test_a_program_beside_one_with_another_number(backend, outcome: str) -> None:
    given = asked(case("torch.clamp", torch.randn(9), args=(-0.5,)), "constants")
    backend.__dict__.get("kept", {}).clear()
    assert run_case(given, backend).outcome == outcome
    alone = apply(case("torch.neg", torch.randn(3)), "constants")
    assert isinstance(alone, Untested) and "no number" in alone.reason
    assert isinstance(apply(case("torch.sum", torch.randn(3, 4), args=(0,)), "constants"), Untested)


class Unsure:
    """Is wrong where it compiled in inference mode and is called in it."""

    name = "unsure"

    def compile(self, fn, args):
        made = torch.is_inference_mode_enabled()
        return lambda *args: fn(*args) + (made and torch.is_inference_mode_enabled())


@pytest.mark.parametrize("backend, outcome", [(load("linalg"), "pass"), (Unsure(), "mismatch")])
def test_a_program_that_is_only_run(backend, outcome: str) -> None:
    given = case("torch.square", torch.randn(9))
    assert run_case(asked(given, "inference"), backend).outcome == outcome
    assert run_case(given, backend).outcome == "pass"
    learning = asked(given, "backward")
    assert isinstance(apply(learning, "inference"), Untested), "there are no gradients in inference mode"


class Unchecked:
    """Takes any index."""

    name = "unchecked"

    def compile(self, fn, args):
        return lambda x, i: x[i.clamp(max=len(x) - 1)]


@pytest.mark.parametrize("backend, outcome", [(load("linalg"), "pass"), (Unchecked(), "mismatch")])
def test_an_index_out_of_range_has_to_be_refused(backend, outcome: str) -> None:
    taking = case("torch.take", torch.randn(5), torch.tensor([1, 2]))
    verdict = run_case(asked(taking, "outside"), backend)
    assert verdict.outcome == outcome and (outcome == "pass" or verdict.kind == "accepted")
    negated = case("torch.neg", torch.tensor([1, 2]))
    assert run_case(asked(negated, "outside"), backend).outcome == "untested", "eager takes them all"


def test_square_inputs_tell_dims_by_nothing_but_their_place() -> None:
    x, y = asked(case("torch.mm", torch.randn(3, 8), torch.randn(8, 2)), "square").args
    assert x.shape == y.shape == (5, 5) and x.stride() == y.stride() == (1, 5)


def test_each_operand_is_the_smaller_one_in_turn() -> None:
    changed = asked(case("torch.addcmul", *(torch.randn(4, 3) for _ in range(3))), "smaller")
    shapes = [tuple(changed.inputs[ref.name].shape) for call in changed.program.calls for ref in call.args]
    whole = (4, 3)
    assert [shapes[at : at + 3] for at in range(0, len(shapes), 3)] == [
        [small if at == place else whole for at in range(3)] for place in range(3) for small in ((3,), (4, 1))
    ]
    refused = apply(case("torch.dot", torch.randn(4), torch.randn(4)), "smaller")
    assert isinstance(refused, Untested) and "another size" in refused.reason


def test_halves_are_whole_numbers_and_those_between_of_the_signs_there_were() -> None:
    (x,) = asked(case("torch.neg", torch.randn(9, 9)), "halves").args
    assert set((2 * x).unique().tolist()) == set(range(-40, 41))
    (x,) = asked(case("torch.sqrt", torch.rand(9, 9)), "halves").args
    assert float(x.min()) == 0.0 and float(x.max()) == 20.0

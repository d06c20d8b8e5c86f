"""What decomposing does to PyTorch's composite ops is kept from one program to the next, and changes no program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program

from torchstone.conformance.backends import composite
from torchstone.conformance.backends.composite import TABLES, composite_ops_known, kept
from torchstone.conformance.program.fx import as_module

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch.export's own tree specs
aten = torch.ops.aten


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "composites": lambda x: (x.flatten().expand_as(x.flatten()), torch.einsum("ij,kj->ik", x, x), x.narrow(0, 1, 1)),
    "linear": lambda x: torch.nn.functional.linear(x, x),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "in place": lambda x: x.clone().add_(1).t(),
}
TABLE: dict[str, Callable[[], Any]] = {
    "nothing": dict,
    "core": torch.export.default_decompositions,
    "core but linear": lambda: dict(core_but(aten.linear.default)),
    "linear by another": lambda: {aten.linear.default: lambda x, w, b=None: torch.mm(x, w.t()) * 2},
}


def core_but(left_out: Any) -> Iterator[tuple[Any, Any]]:
    return ((op, how) for op, how in torch.export.default_decompositions().items() if op is not left_out)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often PyTorch's own is asked, with nothing kept from before."""
    asked: list[int] = []
    real = exported_program._override_composite_implicit_decomp

    def override(table: Mapping[Any, Any]) -> Any:
        asked.append(len(table))
        return real(table)

    monkeypatch.setattr(exported_program, "_override_composite_implicit_decomp", override)
    monkeypatch.setattr(composite, "_overridden", None)
    return asked


def state() -> tuple[dict[Any, Any], dict[Any, Any]]:
    ops = exported_program._split_decomp_table_to_cia_and_python_decomp({})[0]
    return {op: dict(op.py_kernels) for op in ops}, dict(op_implementations_dict)


@pytest.mark.torture
@pytest.mark.parametrize("table", TABLE)
def test_programs_are_decomposed_as_they_are_without(table: str, counted: list[int]) -> None:
    x = torch.randn(2, 3)
    exported = [torch.export.export(as_module(fn), (x,), strict=False) for fn in PROGRAMS.values()]
    plain = [str(program.run_decompositions(TABLE[table]()).graph) for program in exported]
    counted.clear()
    before = state()
    for _ in range(2):
        with composite_ops_known():
            assert [str(program.run_decompositions(TABLE[table]()).graph) for program in exported] == plain
    assert state() == before
    # A function made anew is another one, whatever it does.
    assert len(counted) == (8 if table == "linear by another" else 1)


def test_another_table_is_another_decomposition(counted: list[int]) -> None:
    x = torch.randn(3, 3)
    program = torch.export.export(as_module(torch.nn.functional.linear), (x, x), strict=False)
    with composite_ops_known():
        for _ in range(2):
            for name, calls in (("nothing", "linear"), ("core", "permute"), ("linear by another", "mul")):
                assert calls in str(program.run_decompositions(TABLE[name]()).graph), name


class Op:
    def __init__(self, **kernels: str) -> None:
        self.py_kernels: dict[str, str] = dict(kernels)
        self._dispatch_cache: dict[str, str] = {}


def test_kernels_come_and_go_and_are_asked_for_again_once_they_are_others() -> None:
    asked: list[Mapping[Any, Any]] = []

    @contextmanager
    def override(table: Mapping[Any, Any]) -> Iterator[None]:
        asked.append(table)
        before = {op: dict(op.py_kernels) for op in table}
        for op, how in table.items():
            op.py_kernels["composite"] = how
            op_implementations_dict[op] = how
        try:
            yield
        finally:
            for op, its in before.items():
                op.py_kernels.clear()
                op.py_kernels.update(its)
                op_implementations_dict.pop(op)

    op, other = Op(own="1"), Op()
    overridden = kept(override)
    for times, cached in ((1, False), (1, True)):
        with pytest.raises(ZeroDivisionError), overridden({op: "a"}):  # it is left however it ends
            assert op.py_kernels == {"own": "1", "composite": "a"}
            assert op_implementations_dict[op] == "a"
            assert not op._dispatch_cache
            op._dispatch_cache["of this time"] = "a"
            raise ZeroDivisionError
        assert op.py_kernels == {"own": "1"}
        assert op not in op_implementations_dict
        assert not cached or not op._dispatch_cache  # the stand-in does not clear it
        op._dispatch_cache.clear()
        assert len(asked) == times
    with overridden({op: "b"}):
        assert op.py_kernels["composite"] == "b"
    with overridden({op: "a", other: "a"}):
        assert other.py_kernels == {"composite": "a"}
    assert len(asked) == 3
    op.py_kernels["new"] = "2"
    for _ in range(2):
        with overridden({op: "a"}):
            assert op.py_kernels == {"own": "1", "new": "2", "composite": "a"}
    assert len(asked) == 4
    for number in range(TABLES + 1):  # only the last few are kept
        with overridden({op: str(number)}):
            pass
    with overridden({op: "a"}):
        assert op.py_kernels["composite"] == "a"
    assert len(asked) == 4 + TABLES + 2


def is_patched() -> bool:
    before = exported_program._override_composite_implicit_decomp
    with composite_ops_known():
        return exported_program._override_composite_implicit_decomp is not before


def test_the_patch_has_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_patched()
    with composite.unpatched():
        assert not is_patched()
        assert not composite.has_patched()
    assert composite.has_patched()
    monkeypatch.setenv(composite.VARIABLE, "0")
    assert not is_patched()


def test_the_patch_is_known_by_the_backend_that_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composite, "_patched_for", set())
    with composite.on_trial("one"):
        assert is_patched()
    assert composite.has_patched("one") and not composite.has_patched("another")


@pytest.mark.parametrize("name", ["_collect_all_valid_cia_ops", "_override_composite_implicit_decomp"])
def test_a_release_without_what_is_patched_is_left_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composite, "_patched_for", set())
    monkeypatch.delattr(exported_program, name)
    with composite_ops_known():
        assert not hasattr(exported_program, name)
    assert not composite.has_patched()

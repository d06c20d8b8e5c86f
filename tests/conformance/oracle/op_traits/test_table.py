"""The table of op traits: its names are PyTorch's, its readers read it, and no other module holds such a table."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
import torch

import torchstone.conformance
import torchstone.fuzz
import torchstone.reducers
from torchstone.conformance.oracle.op_traits.order_of_terms import TRANSFORMS
from torchstone.conformance.oracle.op_traits.right_answers import ORDERS_TIES
from torchstone.conformance.oracle.op_traits.table import TRAITS, traits_of
from torchstone.conformance.oracle.op_traits.trait import Implementations, Names, each, names_of
from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.literals import ProgramError

aten = torch.ops.aten
ROOMS = {
    room: Path(package.__path__[0])
    for room, package in (
        ("conformance", torchstone.conformance),
        ("fuzz", torchstone.fuzz),
        ("reducers", torchstone.reducers),
    )
}


def is_operator(name: str) -> bool:
    """Whether ATen, or the namespace that is named, has an operator, and the overload if one is named."""
    namespace, _, rest = name.rpartition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace or "aten"), operator, None)
    packet = packet or getattr(aten, f"{operator}_", None)  # some are in place only
    return packet is not None and (not overload or overload in packet.overloads())


def is_public(name: str) -> bool:
    """Whether programs can call a function of this name, or the op database has an op of it."""
    from torch.testing._internal.common_methods_invocations import op_db

    if any(name in (info.name, f"{info.name}.{info.variant_test_name}") for info in op_db):
        return True
    for prefix in ("torch.", "torch.Tensor.", "torch.special."):
        for target in (prefix + name, f"{prefix}{name}_"):
            try:
                resolve(target)
            except ProgramError:
                continue
            return True
    return False


@pytest.mark.parametrize("constant", TRAITS)
def test_names_are_those_of_ops(constant: str) -> None:
    trait = TRAITS[constant]
    known = is_operator if trait.names is Names.ATEN else is_public
    unknown = [name for name in trait.ops if not known(name)]
    assert not unknown, f"{constant} names what are no {trait.names} of PyTorch {torch.__version__}: {unknown}"


def test_a_wrong_name_is_seen() -> None:
    assert is_operator("median.dim") and not is_operator("median.dims") and not is_operator("relux")
    assert is_operator("prims::iota") and not is_operator("prims::sort")
    assert is_public("nn.functional.relu") and not is_public("nn.functional.relux") and not is_public("relux_")


def readers(constant: str) -> set[str]:
    """The modules that read something of the table and name a constant, but for the table's own."""
    found = set()
    for room, root in ROOMS.items():
        for path in root.rglob("*.py"):
            text = path.read_text()
            if "op_traits" in path.parts or "oracle.op_traits" not in text:
                continue
            if re.search(rf"\b{constant}\b", text):
                found.add(".".join((room, *path.relative_to(root).with_suffix("").parts)))
    return found


def test_who_reads_a_trait_is_what_the_table_says() -> None:
    for constant, trait in TRAITS.items():
        found = readers(constant)
        read = {name for name in found if importlib.import_module(f"torchstone.{name}")}
        assert read - {"conformance.oracle.waivers"} == set(trait.read_by), f"read_by of {constant}"


def test_each_trait_says_why_and_what_comes_of_it() -> None:
    for constant, trait in TRAITS.items():
        assert trait.ops and len(trait.reason) > 20 and len(trait.effect) > 20 and trait.title, constant
    assert len({trait.title for trait in TRAITS.values()}) == len(TRAITS)


def test_names_of_an_operator() -> None:
    assert names_of(aten.mul_.Tensor) == ("mul", "mul.Tensor", "aten::mul")
    assert ORDERS_TIES.holds(aten.sort.stable) and not ORDERS_TIES.holds(aten.sort.values)
    assert TRANSFORMS.holds(torch.ops.prims.fft_c2c.default) and TRANSFORMS.holds(aten._fft_c2c.default)
    assert {"NEVER_ROUNDS", "CHOOSES_AMONG_EQUALS", "JUMPS"} <= set(traits_of("sort"))


def test_a_name_twice_and_a_function_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="the op sum is named twice"):
        each("sum mean sum")
    rules: Implementations[int] = Implementations(TRANSFORMS)
    rules.register("_fft_c2c")(1)
    with pytest.raises(ValueError, match="_fft_c2c has two functions"):
        rules.register("_fft_c2c")(2)
    with pytest.raises(ValueError, match="add it to the table"):
        rules.register("sum")(3)
    assert rules.of(aten._fft_c2c.default) == 1 and "_fft_c2r" in rules.missing()


REGISTRIES = [
    ("conformance.oracle.ambiguity.factorizations", "_RULES"),
    ("conformance.oracle.ambiguity.phases", "_RULES"),
    ("conformance.oracle.overflow.formulas", "FORMULAS"),
    ("conformance.oracle.overflow.products", "_SUMS"),
    ("conformance.oracle.perturbation.decompositions", "_POLYNOMIALS"),
    ("conformance.oracle.perturbation.oscillatory_zeros", "_AMPLITUDES"),
    ("conformance.oracle.reference.dtype_defaults", "_RULES"),
    ("conformance.execution.undefined_behavior", "_RULES"),
]


@pytest.mark.parametrize("module, name", REGISTRIES)
def test_each_op_has_its_function(module: str, name: str) -> None:
    registry = getattr(importlib.import_module(f"torchstone.{module}"), name)
    assert not registry.missing(), f"{module} has no function for {registry.missing()}"


ELSEWHERE = {
    "conformance/oracle/op_traits": "the table",
    "conformance/mutants": "planted bugs, each of some ops",
    "conformance/controls": "right backends, each with kernels of its own for some ops",
    "conformance/program": "what programs may call: a boundary against untrusted files",
    "conformance/sources/functions": "samples of functions that the op database lacks",
    "conformance/sources/models": "models that call ops",
    "conformance/sources/programs": "the steps of which short programs are made",
    "fuzz/selftrial/syntactic": "a few ops that warm a process up",
    "fuzz/generator/families": "how the fuzzer draws arguments, op by op",
}
"""Folders whose modules may name many ops, and what for."""


def tables(source: str, operators: set[str]) -> list[str]:
    """The names of a module's constants that hold three names of ops or more."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            parts = [leaf for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant | ast.Attribute)]
            words = [
                word.removeprefix("torch.").removeprefix("aten::").removeprefix("Tensor.")
                for part in parts
                for word in (str(part.value).split() if isinstance(part, ast.Constant) else [part.attr])
            ]
            if sum(word in operators for word in words) > max(2, 0.5 * len(words)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.append(ast.unparse(target))
    return found


def operators() -> set[str]:
    return {name for name in dir(aten) if not name.startswith("__")} | set().union(*(t.ops for t in TRAITS.values()))


def test_no_other_module_holds_a_table_of_op_names() -> None:
    names = operators() - {"bool", "int", "float", "complex", "random", "is_complex", "real"}
    found = {
        f"{room}/{path.relative_to(root)}": constants
        for room, root in ROOMS.items()
        for path in root.rglob("*.py")
        if not f"{room}/{path.relative_to(root)}".startswith(tuple(ELSEWHERE))
        and (constants := tables(path.read_text(), names))
    }
    assert not found, f"tables of op names belong into conformance/oracle/op_traits: {found}"


def test_a_table_of_op_names_is_seen() -> None:
    names = operators()
    assert tables('A = frozenset(("sort", "topk", "kthvalue"))', names) == ["A"]
    assert tables("A = (aten.sort.default, aten.topk.default, aten.mode.default)", names | {"default"}) == ["A"]
    assert tables('A = """sort topk\\n mode"""', names) == ["A"] and not tables('A = ("an", "answer", "sort")', names)

"""The simulator has the names of the real TensorRT bindings: methods, argument names, properties, enum values.

``api_<version>.json`` are dumps of the real bindings by ``dump_api.py``, which says how to make one. Where the bindings
are installed (the extra ``tensorrt-bindings``), they are dumped again, over stub libraries, and compared.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from torchstone.compiler.runtime.tensorrt import simulator

HERE = Path(__file__).parent
NEWEST = "api_11.4.0.json"
# The oldest version the lowering is written for; what came later, the lowering may not use.
OLDEST = "api_10.3.0.json"
LATER = {
    ("INetworkDefinition", "add_cumulative"), ("ICumulativeLayer", "op"), ("ICumulativeLayer", "exclusive"),
    ("ICumulativeLayer", "reverse"), ("ITopKLayer", "indices_type"),
}  # fmt: skip


@lru_cache
def installed() -> str:
    """Return the dump of the installed bindings, or an empty string."""
    if importlib.util.find_spec("tensorrt_bindings") is None:
        return ""
    dump = subprocess.run([sys.executable, HERE / "dump_api.py"], capture_output=True, text=True, check=True)
    return dump.stdout


def load(name: str) -> dict[str, Any]:
    if name == "installed" and not installed():
        pytest.skip("the TensorRT bindings are not installed: pip install tensorrt-cu13-bindings")
    return json.loads(installed() if name == "installed" else (HERE / name).read_text())


def public(cls: type) -> dict[str, Any]:
    """Return the public members that a class of the simulator, or its bases there, define."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith(simulator.__name__) or base is cls]
    names = {n for base in bases for n in vars(base) if not n.startswith("_") or n == "__init__"}
    return {n: inspect.getattr_static(cls, n) for n in sorted(names)}


def classes() -> list[type]:
    found = (getattr(simulator, name) for name in simulator.__all__)
    return [c for c in found if isinstance(c, type) and not issubclass(c, (IntEnum, tuple))]


@pytest.mark.parametrize("dump", [NEWEST, OLDEST, "installed"])
@pytest.mark.parametrize("cls", classes(), ids=lambda c: c.__name__)
def test_class_has_the_names_of_the_bindings(dump: str, cls: type) -> None:
    real = load(dump)
    if cls.__name__ not in real["methods"]:
        assert cls is simulator.ICumulativeLayer
        assert dump != NEWEST
        pytest.skip("came in a later version")
    chain = [c.__name__ for c in cls.__mro__ if c.__name__ in real["methods"]]
    methods = {k: v for name in reversed(chain) for k, v in real["methods"][name].items()}
    properties = {p for name in chain for p in real["properties"][name]}
    for name, member in public(cls).items():
        if (cls.__name__, name) in LATER and dump != NEWEST:
            continue
        if not inspect.isfunction(member):
            # Severity members of the loggers are class attributes in the bindings, not properties.
            known = name in properties or issubclass(cls, simulator.ILogger)
            assert known, f"{cls.__name__}.{name} is no property of the bindings"
            continue
        if name == "__init__" and cls not in (simulator.Builder, simulator.Runtime, simulator.Logger):
            continue  # not constructed by the user, or (Weights) with overloads of their own
        if cls is simulator.Weights:
            continue
        assert name in methods, f"{cls.__name__}.{name} is no method of the bindings"
        mine = [p.name for p in inspect.signature(member).parameters.values() if p.name != "self"]
        theirs = [[a.removesuffix("=") for a in overload] for overload in methods[name]]
        optional = any(overload[: len(mine)] == mine or mine[: len(overload)] == overload for overload in theirs)
        assert mine in theirs or optional, f"{cls.__name__}.{name}({', '.join(mine)}), the bindings have {theirs}"


@pytest.mark.parametrize("dump", [NEWEST, "installed"])
def test_enums_have_the_values_of_the_bindings(dump: str) -> None:
    real = load(dump)["enums"]
    for name in simulator.__all__:
        enum = getattr(simulator, name)
        if isinstance(enum, type) and issubclass(enum, IntEnum):
            mine = {member.name: int(member) for member in enum}
            assert mine.items() <= real[name].items(), name


def test_the_committed_dump_is_what_the_bindings_say() -> None:
    found, committed = load("installed"), load(NEWEST)
    if found["version"] != committed["version"]:
        pytest.skip(f"{found['version']} is installed, the dump is of {committed['version']}")
    assert found == committed


def test_a_wrong_name_is_noticed() -> None:
    """The comparison can fail: a method and an argument that the bindings have not."""

    class INetworkDefinition:
        def add_sum(self, x: Any) -> None: ...

    class Builder:
        def create_network(self, options: int = 0) -> None: ...

    for wrong, words in ((INetworkDefinition, "no method"), (Builder, "the bindings have")):
        with pytest.raises(AssertionError, match=words):
            test_class_has_the_names_of_the_bindings(NEWEST, wrong)


def test_what_the_lowering_hands_over_is_accepted_by_the_bindings() -> None:
    """Values that need no engine: dims, permutations, weights, the logger, flags."""
    load("installed")
    code = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import dump_api
import numpy as np
from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.engine import Log
from torchstone.compiler.runtime.tensorrt.transcript import Transcript

trt = dump_api.import_over_stubs()
assert tuple(trt.Dims(())) == () and tuple(trt.Dims([2, 0, 3])) == (2, 0, 3) and tuple(trt.Dims((-1,))) == (-1,)
assert list(trt.Permutation((1, 0)))[:2] == [1, 0]  # always eight entries, of which the first are read
for array in (np.zeros((), np.float32), np.zeros((2, 3), np.float16), np.zeros(0, np.int64), np.ones(3, np.int32)):
    assert trt.Weights(array).size == array.size
assert trt.Weights(trt.DataType.FLOAT).size == 0
digests = set()
for given in (trt.DataType.FLOAT, trt.DataType.HALF, trt.UnaryOperation.EXP, trt.Weights(trt.DataType.FLOAT),
              trt.Weights(trt.DataType.HALF), np.ones(2), np.zeros(2), (1, 2)):
    for _ in range(2):
        transcript = Transcript(trt)
        transcript.add("layer", given)
        digests.add(transcript.digest())
assert len(digests) == 8 and isinstance(trt.ITensor.name, property)
log = Log(trt)
log.logger.log(trt.ILogger.WARNING, "quiet")
log.logger.log(trt.ILogger.ERROR, "loud")
assert log.take() == "loud"
assert all(hasattr(trt.DataType, name) for name in rules.DATA_TYPES.values())
for table, enum in ((rules.UNARY, trt.UnaryOperation), (rules.ELEMENTWISE, trt.ElementWiseOperation)):
    assert set(table) == set(enum.__members__)
assert 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
assert trt.BuilderFlag.TF32 in trt.BuilderFlag.__members__.values()
"""
    subprocess.run([sys.executable, "-c", code], check=True)

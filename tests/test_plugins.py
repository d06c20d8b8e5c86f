"""The plugins in examples/plugin and in the guides: registered as is said there, each is used.

One that is broken costs no other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from torchstone.conformance.store import Store

from .distributions import distribution
from .rules import ROOT
from .test_docs import fences, split
from .warm_python import WarmPython

Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, warm_compiler: WarmPython) -> Python:
    """Run a Python that has the plugins installed, and the broken one of another distribution."""
    for module in ("pip", "setuptools"):
        try:
            version(module)
        except PackageNotFoundError:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path_factory.mktemp("plugins")
    source, site = folder / "source", folder / "site"
    shutil.copytree(ROOT / "examples" / "plugin", source)  # setuptools builds in the folder it is given

    def run(*words: object, script: str = "") -> subprocess.CompletedProcess[str]:
        if script:
            (folder / "script.py").write_text(script)
            words = (folder / "script.py", *words)
        return warm_compiler.run(*words, cwd=folder, environment={"PYTHONPATH": str(site)})

    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", site)
    done = subprocess.run([sys.executable, *pip, source], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    broken = {"torchstone.variants": {"crooked": "no_such_module:X"}, "torchstone.sources": {"dry": "no_such_module"}}
    distribution(site, "torchstone-broken", broken)
    return run


@pytest.mark.torture
def test_the_variant_and_the_source_are_run(python: Python, tmp_path: Path) -> None:
    store = tmp_path / "results.sqlite"
    what = ("--source", "opinfo", "--source", "losses", "--op", "exp2", "--op", "mse", "--limit", 1, "--jobs", 1)
    done = python("-m", "torchstone", "run", "--backend", "linalg", *what, "--variant", "all", "--store", store)
    assert done.returncode == 0, done.stderr
    warning = 'warning: left out: variant "crooked" of torchstone-broken 1.0 cannot be loaded: ModuleNotFoundError'
    assert done.stderr.count(warning) == 1
    with Store(store, create=False) as db:
        rows = db.verdicts("r1").set_index("case_id")
    assert {"opinfo", "losses"} == set(rows.source) and {"default", "strided", "reused"} <= set(rows.variant)
    assert rows.outcome["opinfo:exp2:float32:0:reused"] == rows.outcome["losses:mse:float32:0:reused"] == "pass"

    done = python("-m", "torchstone", "run", "--backend", "eager", "--op", "exp2", "--variant", "crooked")
    assert done.returncode == 2 and 'error: variant "crooked" of torchstone-broken 1.0' in done.stderr
    done = python("-m", "torchstone", "run", "--backend", "eager", "--op", "exp2", "--variant", "reusd")
    assert done.returncode == 2 and 'did you mean "reused"' in done.stderr


def test_the_target_compiles(python: Python, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\n\n\ndef forward(x):\n    return torch.exp(x) * torch.exp(-x)\n")
    words = ("compile", f"{tmp_path}/model.py:forward", "--arg", "f32[2, 3]", "--target", "counting")
    done = python("-m", "torchstone", *words)
    assert done.returncode == 0, done.stderr
    assert "flat.exp x2" in done.stdout.splitlines()


@pytest.mark.torture
def test_the_others_and_what_doctor_says(python: Python) -> None:
    script = """
import warnings
warnings.simplefilter("error", UserWarning)
import torch
from torchstone.cli.commands.doctor import _plugins
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz.generator.generate import nth_program
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.reducers.failure import reduce_case

for row in _plugins():
    print(row["check"], row["ok"], row["found"])


class Short:
    name = "short"

    def compile(self, fn, args):
        return lambda *tensors: fn(*tensors)[:1]


call = Call("torch.tanh", (Ref("x0"),), {}, "v0")
case = Case(Program(("x0",), (call,), Ref("v0")), {"x0": torch.randn(4)}, "test", "tanh", "float32")
judge = lambda case: run_case(case, Short())
found = reduce_case(case, "short", judge=judge, confirm=judge)
print([step.name for step in found.steps if step.name == "plainer-ops"], found.case.program.calls[0].target)

(rule,) = select_rules(["cdist"])
print(rule.draw.__module__, nth_program(0, 1, [rule], 1).program.calls[0].target)
"""
    done = python(script=script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "variant reused True of torchstone-example 0.1.0" in lines
    for check in ("target counting", "source losses", "reducer pass plainer-ops", "fuzz family distances"):
        assert f"{check} True of torchstone-example 0.1.0" in lines
    assert any(line.startswith('source dry False source "dry" of torchstone-broken 1.0 cannot be') for line in lines)
    assert "['plainer-ops'] torch.neg" in lines
    assert "torchstone_example.fuzz_family torch.cdist" in lines


@pytest.mark.torture
def test_without_the_plugin_its_cases_are_untested(python: Python, tmp_path: Path) -> None:
    """A worker in a Python without the package must not answer a question that it does not know."""
    made = tmp_path / "case.safetensors"
    script = f"""
from pathlib import Path
from torchstone.conformance.sources import find_case
Path({str(made)!r}).write_bytes(find_case("opinfo:exp2:float32:0:reused").to_bytes())
"""
    done = python(script=script)
    assert done.returncode == 0, done.stderr
    from torchstone.conformance.backends import load
    from torchstone.conformance.execution.run_case import run_case
    from torchstone.conformance.program.case import Case

    verdict = run_case(Case.load(made), load("eager"))
    assert verdict.outcome == "untested" and 'the variant "reused" is not installed' in verdict.message
    label = Case.load(made).replace(tags=(), variant="seed-7")
    assert run_case(label, load("eager")).outcome == "pass"


@pytest.mark.torture
def test_what_the_guides_register_is_found(tmp_path: Path, warm_python: WarmPython) -> None:
    pages = [ROOT / "docs" / f"adding-a-{kind}.md" for kind in ("target", "variant", "reducer-pass", "fuzz-family")]
    for page in pages:
        (text,) = fences(page, "toml")
        distribution(tmp_path, page.stem, tomllib.loads(text)["project"]["entry-points"], split(page)[0])
    script = """
import sys
from torchstone.cli import invoke
from torchstone.cli.commands.doctor import _plugins

for row in _plugins():
    print(row["check"], row["ok"], row["found"])
run = ["run", "--backend", "linalg", "--op", "mm", "--limit", "1", "--jobs", "1", "--store", sys.argv[1]]
assert invoke([*run, "--variant", "padded", "--variant", "reused"]) == 0
"""
    (tmp_path / "script.py").write_text(script)
    words = (tmp_path / "script.py", tmp_path / "results.sqlite")
    done = warm_python.run(*words, cwd=tmp_path, environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "target numpy True of adding-a-target 1.0" in lines
    assert {"variant padded True of adding-a-variant 1.0", "variant reused True of adding-a-variant 1.0"} <= {*lines}
    assert "reducer pass plainer-ops True of adding-a-reducer-pass 1.0" in lines
    assert "fuzz family outer-sums True of adding-a-fuzz-family 1.0" in lines
    with Store(tmp_path / "results.sqlite", create=False) as db:
        rows = db.verdicts("r1").set_index("variant")
    assert dict(rows.outcome) == {"padded": "pass", "reused": "pass"}

"""No private name of PyTorch stands outside ``compiler/_torch``, and each form that one can have is seen."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from .private_names import private_names, violations
from .rules import ROOT


def test_one_package_has_every_private_name() -> None:
    found = violations()
    assert not found, "private names of PyTorch outside compiler/_torch:\n" + "\n".join(found)


SEEDS = [
    ("import torch._dynamo", "torch._dynamo"),
    ("import torch._inductor.config as config", "torch._inductor.config"),
    ("def f():\n    from torch._subclasses import fake_tensor", "torch._subclasses.fake_tensor"),
    ("from torch.utils._pytree import tree_map", "torch.utils._pytree.tree_map"),
    ("from torch.utils import _pytree as pytree", "torch.utils._pytree"),
    ("from torch import _C", "torch._C"),
    ("from torch.fx.experimental.symbolic_shapes import ShapeEnv", "torch.fx.experimental.symbolic_shapes.ShapeEnv"),
    ("from torch.testing._internal.common_utils import TestCase", "torch.testing._internal.common_utils.TestCase"),
    ("import torch\ntorch._C._len_torch_dispatch_stack()", "torch._C._len_torch_dispatch_stack"),
    ("import torch as t\nx = t._conj(t.ones(2))", "torch._conj"),
    ("import torch\nisinstance(f, torch._ops.OpOverload)", "torch._ops.OpOverload"),
    ("from torch import utils\nutils._pytree.tree_map", "torch.utils._pytree.tree_map"),
    ("import torch\ntorch._C._swap_tensor_impl = None", "torch._C._swap_tensor_impl"),
    ("import torch\ngetattr(torch, '_sync')", "torch._sync"),
    ("import torch\n[getattr(torch, f'_sym_{n}') for n in names]", "torch._sym_"),
    ("import torch\nvars(torch._C)['_VariableFunctions']", "torch._C"),
    ("from unittest import mock\nimport torch\nmock.patch.object(torch, '_sync')", "torch._sync"),
    ("import importlib\nimportlib.import_module('torch._decomp')", "torch._decomp"),
    ("import sys\nloaded = 'torch._dynamo' in sys.modules", "torch._dynamo"),
    ("mock.patch('torch._C._get_mkldnn_enabled')", "torch._C._get_mkldnn_enabled"),
    ("def f(func):\n    return func._schema.arguments", "._schema"),
    ("def f(x):\n    return x.untyped_storage()._cdata", "._cdata"),
    ("def f(module):\n    module._parameters['w'] = 1", "._parameters"),
    ("def f(module):\n    return module._buffers", "._buffers"),
    ("def f(module):\n    return module._modules", "._modules"),
    ("def f(x):\n    return x._base", "._base"),
    ("def f(x):\n    return x._version", "._version"),
    ("def f(x):\n    x._is_param = True", "._is_param"),
    ("def f(op):\n    op._dispatch_cache.clear()", "._dispatch_cache"),
    ("def f(op):\n    return hasattr(op, '_schema')", "._schema"),
    ("def f(env):\n    setattr(env, '_get_sloc', None)", "._get_sloc"),
    (
        "from torchstone.compiler._torch.modes import TorchDispatchMode\n"
        "class Mode(TorchDispatchMode):\n    def __init__(self):\n        self._mode_key = 1",
        "._mode_key",
    ),
    (
        "from torchstone.compiler._torch import functionalization\n"
        "class Mode(functionalization.FunctionalTensorMode):\n"
        "    def _sync_view_replay_annotations(self, args, kwargs): pass",
        "._sync_view_replay_annotations",
    ),
    ("import torch\nclass Mine(torch.nn.Module):\n    def f(self):\n        return self._buffers", "._buffers"),
]


@pytest.mark.parametrize(("text", "name"), SEEDS)
def test_a_private_name_is_found(text: str, name: str) -> None:
    assert [found.name for found in private_names(ast.parse(text))] == [name]


ALLOWED = [
    "import torch\ntorch.ops.aten._to_copy.default(x)",
    "import torch\naten = torch.ops.aten\naten._linalg_svd",
    "import torch\ntorch.Tensor.__getitem__, torch.__version__, torch.utils.data",
    "from torchstone.compiler._torch.pytrees import tree_map",
    "from torchstone.compiler._torch import modes\nmodes.depths()",
    '"""What torch._C has, and torch.utils._pytree:"""\n"torch._C, as the docs have it"',
    "class Ours:\n    def __init__(self):\n        self._schema = self._buffers = 1",
    "from torch import nn\nclass Mine(nn.Module):\n    def __init__(self):\n        self._our_own = 1",
    "import os\nos._exit(1)",
    "lines = ['from torch.utils._pytree import tree_leaves']",
]


@pytest.mark.parametrize("text", ALLOWED)
def test_what_is_not_private_is_left_alone(text: str) -> None:
    assert private_names(ast.parse(text)) == []


def test_violations_name_file_and_line(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "compiler" / "_torch").mkdir(parents=True)
    (tmp_path / "fuzz").mkdir()
    (tmp_path / "compiler" / "_torch" / "right.py").write_text("import torch._dynamo\n")
    (tmp_path / "fuzz" / "wrong.py").write_text("import torch\n\nprint(torch._C)\n")
    assert violations(tmp_path) == ["fuzz/wrong.py:3: torch._C"]

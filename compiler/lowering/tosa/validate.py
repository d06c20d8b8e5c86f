"""The profile our TOSA is validated against, and the way from TOSA to linalg on tensors.

TOSA specification 1.1 (draft), profiles PRO-INT and PRO-FP, level 8K, with the extensions named below: EXT-INT64 for
PyTorch's default integer, EXT-INT16 and EXT-BF16 to move and round those dtypes, EXT-DYNAMIC for a padding value that
is computed.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.compiler.runtime import pipelines

EXTENSIONS = ("int16", "int64", "bf16", "dynamic")

VALIDATE = (
    f"tosa-attach-target{{profiles=pro_int,pro_fp extensions={','.join(EXTENSIONS)} "
    "specification_version=1.1.draft level=8k},tosa-validate{strict-op-spec-alignment=true}"
)

TO_LINALG = "func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith,tosa-to-tensor,tosa-to-scf)"


def validate(module: Any) -> None:
    """Run ``tosa-validate``; Unsupported (stage ``lower``) with its message when it refuses the module."""
    try:
        pipelines.run_text(VALIDATE, module, label="tosa-validate")
    except TorchstoneError as error:
        raise Unsupported(f"tosa-validate refuses the program: {error.message}", stage="lower") from None


def to_linalg(module: Any) -> None:
    """Lower a TOSA module to linalg, arith, math and tensor with upstream's passes, in place."""
    pipelines.run_text(TO_LINALG, module, label="tosa-to-linalg")

"""What the reducer of MLIR modules makes of modules that fail: sizes before and after, and how many trials it took.

The modules are what our compiler lowers some functions to, with fixed and with free sizes. Pipelines are drawn from
upstream's passes until there are as many failures as asked for, each with a signature of its own: the kind of failure,
the pass, and the message. Releases of MLIR seldom crash, so that most of them are errors of a pass.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from torchstone.compiler.driver import compile
from torchstone.reducers.engine import Budget
from torchstone.reducers.mlir import edits, pipeline, questions
from torchstone.reducers.mlir.shrink import Subject, shrink
from torchstone.reducers.mlir.trial import Outcome

TIMEOUT = 20.0
"""Seconds that a trial may take."""
BUFFERS = "one-shot-bufferize{bufferize-function-boundaries=true}"
LOOPS = ("convert-linalg-to-loops", "convert-linalg-to-affine-loops", "convert-linalg-to-parallel-loops")
PASSES = """
    canonicalize cse inline sroa mem2reg linalg-fuse-elementwise-ops linalg-fold-unit-extent-dims
    linalg-generalize-named-ops linalg-specialize-generic-ops convert-elementwise-to-linalg
    empty-tensor-to-alloc-tensor eliminate-empty-tensors buffer-results-to-out-params buffer-deallocation-pipeline
    ownership-based-buffer-deallocation func.func(affine-loop-tile) func.func(affine-super-vectorize)
    func.func(affine-data-copy-generate) func.func(affine-parallelize) affine-loop-fusion
    scf-for-loop-canonicalization scf-for-to-while gpu-kernel-outlining async-parallel-for expand-strided-metadata
    normalize-memrefs arith-expand math-uplift-to-fma lower-affine convert-scf-to-cf convert-vector-to-scf
    convert-vector-to-llvm convert-math-to-llvm convert-complex-to-standard convert-arith-to-llvm
    convert-index-to-llvm convert-func-to-llvm finalize-memref-to-llvm convert-cf-to-llvm convert-arith-to-emitc
    convert-scf-to-emitc convert-func-to-emitc convert-memref-to-emitc convert-arith-to-spirv convert-scf-to-spirv
    convert-tensor-to-spirv convert-to-llvm remove-dead-values generate-runtime-verification
""".split()  # noqa: SIM905


def functions() -> dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    """Functions and their arguments: between ten and some two hundred operations in linalg."""
    floats, ints = torch.ones(4, 8), torch.ones(3, 4, dtype=torch.int32)
    image, kernel = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
    return {
        "softmax": (lambda x: F.softmax(x, -1) @ x.mT, (floats,)),
        "convolution": (lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2), (image, kernel)),
        "norm": (lambda x: F.layer_norm(x, (8,)).sum(0), (floats,)),
        "sort": (lambda x: torch.sort(x)[1].float() + torch.topk(x, 8)[0], (floats,)),
        "transform": (lambda x: torch.fft.fft(x).abs().log(), (floats,)),
        "integers": (lambda x, y: (x // 3 + y % 5).clamp(0, 9).prod(0), (ints, ints)),
        "scatter": (lambda x: torch.zeros(5, 8).index_add(0, torch.tensor([1, 0, 4, 1]), x), (floats,)),
        "mask": (lambda x: torch.where(x > 0, x, x.mean())[..., 1:].flip(-1), (floats,)),
    }


def modules() -> dict[str, str]:
    """The text of each function in linalg, with fixed sizes and with its first sizes free."""
    found = {}
    for name, (function, args) in functions().items():
        found[name] = compile(function, args).ir["linalg"]
        free = [{0: torch.export.Dim.AUTO} if tensor.shape[0] > 1 else None for tensor in args]
        found[f"{name}, free sizes"] = compile(function, args, dynamic_shapes=free).ir["linalg"]
    return found


def failures(seed: int) -> Iterator[tuple[str, Subject, Outcome]]:
    """Modules with a pipeline that fails on them, each in a way of its own. Endless where no more are found."""
    known, texts, random_ = set(), modules(), random.Random(seed)
    while True:
        name = random_.choice(sorted(texts))
        drawn = [random_.choice(PASSES) for _ in range(random_.randint(3, 9))]
        drawn.insert(random_.randint(0, 1), BUFFERS)
        drawn.insert(random_.randint(1, 3), random_.choice(LOOPS))
        subject = Subject(texts[name], pipeline.parse(",".join(drawn)))
        outcome = questions.try_pipeline(subject.module, subject.pipeline, TIMEOUT)
        if outcome.kind not in ("ok", "invalid") and outcome.signature not in known:
            known.add(outcome.signature)
            yield name, subject, outcome


def main() -> None:
    """Print a line for each failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=10, help="how many are reduced")
    parser.add_argument("--seed", type=int, default=0, help="of the pipelines that are drawn")
    parser.add_argument("--seconds", type=float, default=60.0, help="that a reduction may take")
    args = parser.parse_args()
    kept = 0
    for _, (name, subject, outcome) in zip(range(args.failures), failures(args.seed), strict=False):
        started = time.monotonic()
        reduced = shrink(subject, questions.passing(TIMEOUT), TIMEOUT, Budget(seconds=args.seconds))
        last = reduced.value
        same = questions.try_pipeline(last.module, last.pipeline, TIMEOUT).signature == outcome.signature
        kept += same
        ops, passes = (
            f"{before:4} -> {after:<3}"
            for before, after in (
                (edits.count_ops(subject.module), edits.count_ops(last.module)),
                (pipeline.passes(subject.pipeline), pipeline.passes(last.pipeline)),
            )
        )
        print(
            f"{name:24} ops {ops} passes {passes} {reduced.trials:5} trials {time.monotonic() - started:5.1f} s  "
            f"{'same' if same else 'ANOTHER'}: {outcome.kind} in {outcome.at}",
            flush=True,
        )
    print(f"{kept} of {args.failures} still fail in the same way")


if __name__ == "__main__":
    main()

"""Bugs of matrices, Fourier transforms and broadcasting."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    NAN,
    argument,
    c64,
    complexes,
    f32,
    floats,
    mixed,
    put,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _batch(call: OpCall) -> int:
    return call.x[..., 0, 0].numel() if call.x.dim() > 2 else 1


def _spd(*batch: int) -> torch.Tensor:
    x = mixed(*batch, 3, 3)
    return x @ x.mT + 3 * torch.eye(3)


def _stale_last(out: torch.Tensor) -> torch.Tensor:
    """The last of a batch is the first again."""
    flat = out.reshape(-1, *out.shape[-2:]).clone()
    flat[-1] = flat[0]
    return flat.reshape(out.shape)


MATRICES = bugs(
    "matrices",
    (
        "cholesky-of-batch-lower",
        "the lower factor",
        "upper, with a batch of more than one",
        "attribute ignored for batches",
        "linalg_cholesky_ex",
        argument(lambda c: c["upper"] and _batch(c) > 1, upper=False),
        lambda: ask("torch.linalg.cholesky", _spd(2), upper=True),
        lambda: ask("torch.linalg.cholesky", _spd(), upper=True),
    ),
    (
        "unit-diagonal-ignored",
        "the diagonal is divided by",
        "unitriangular",
        "attribute ignored",
        "linalg_solve_triangular triangular_solve",
        argument(lambda c: c["unitriangular"], unitriangular=False),
        lambda: ask("torch.linalg.solve_triangular", _spd(), mixed(3, 2), upper=True, unitriangular=True),
        lambda: ask("torch.linalg.solve_triangular", _spd(), mixed(3, 2), upper=True),
    ),
    (
        "solve-from-the-right-transposed",
        "the system of the transposed matrix",
        "left=False with a batch",
        "sides exchanged",
        "linalg_solve_triangular",
        when(
            lambda c: not c["left"] and _batch(c) > 1,
            lambda c: c.right(self=c["self"].mT.contiguous(), upper=not c["upper"]),
        ),
        lambda: ask("torch.linalg.solve_triangular", _spd(2), mixed(2, 2, 3), upper=True, left=False),
        lambda: ask("torch.linalg.solve_triangular", _spd(), mixed(2, 3), upper=True, left=False),
    ),
    (
        "inverse-of-last-in-batch",
        "the first one's",
        "the last of a batch",
        "loop that ends one early, over a buffer in use",
        "linalg_inv_ex",
        when(lambda c: _batch(c) > 1, lambda c: (_stale_last(c.right()[0]), c.right()[1])),
        lambda: ask("torch.linalg.inv", _spd(2)),
        lambda: ask("torch.linalg.inv", _spd()),
    ),
    (
        "complete-qr-of-tall",
        "zeros in the columns that complete Q",
        "mode complete with more rows than columns",
        "economy form padded",
        "linalg_qr",
        when(
            lambda c: c["mode"] == "complete" and c.x.shape[-2] > c.x.shape[-1],
            lambda c: (
                torch.cat(
                    [c.right()[0][..., : c.x.shape[-1]], torch.zeros_like(c.right()[0][..., c.x.shape[-1] :])], -1
                ),
                c.right()[1],
            ),
        ),
        lambda: ask("torch.linalg.qr", mixed(3, 2), mode="complete"),
        lambda: ask("torch.linalg.qr", mixed(2, 2), mode="complete"),
    ),
    (
        "eigh-takes-lower",
        "the lower triangle",
        "UPLO is U and the triangles differ",
        "attribute ignored",
        "_linalg_eigh",
        argument(UPLO="L"),
        lambda: ask("torch.linalg.eigvalsh", mixed(3, 3), "U"),
        lambda: ask("torch.linalg.eigvalsh", mixed(3, 3), "L"),
    ),
)


def _unsigned_determinant(call: OpCall) -> Any:
    det, lu, pivots = call.right()
    swaps = (pivots != torch.arange(1, pivots.shape[-1] + 1)).sum(-1)
    return det * (1 - 2 * (swaps % 2)), lu, pivots


def _taylor(x: torch.Tensor) -> torch.Tensor:
    total = term = torch.eye(x.shape[-1], dtype=x.dtype).expand(x.shape)
    for order in range(1, 9):
        term = term @ x / order
        total = total + term
    return total


PRODUCTS_AND_FACTORS = bugs(
    "products and factors",
    (
        "determinant-without-parity",
        "the sign of the permutation is left out",
        "an odd number of row exchanges",
        "product of the diagonal alone",
        "_linalg_det",
        _unsigned_determinant,
        lambda: ask("torch.linalg.det", f32([0, 1], [1, 0])),
        lambda: ask("torch.linalg.det", f32([2, 1], [1, 1])),
    ),
    (
        "matrix-exp-of-large-norm",
        "a Taylor polynomial of degree 8 without scaling",
        "norms beyond 2",
        "no scaling and squaring",
        "linalg_matrix_exp",
        when(lambda c: floats(c) and c.x.numel() > 0 and c.x.abs().sum(-1).max() > 2, lambda c: _taylor(c.x)),
        lambda: ask("torch.linalg.matrix_exp", mixed(3, 3) * 4),
        lambda: ask("torch.linalg.matrix_exp", mixed(3, 3) * 0.1),
    ),
    (
        "adjoint-solve-not-conjugated",
        "transposed alone",
        "complex, adjoint",
        "adjoint taken for transposed",
        "linalg_lu_solve",
        when(lambda c: complexes(c) and c["adjoint"], lambda c: c.right(LU=c["LU"].conj(), B=c["B"])),
        lambda: ask(
            "torch.linalg.lu_solve",
            c64([2 + 1j, 1j], [0.5j, 3]),
            torch.tensor([1, 2], dtype=torch.int32),
            c64([1], [1j]),
            adjoint=True,
        ),
        lambda: ask(
            "torch.linalg.lu_solve",
            c64([2 + 1j, 1j], [0.5j, 3]),
            torch.tensor([1, 2], dtype=torch.int32),
            c64([1], [1j]),
        ),
    ),
    (
        "addmm-reads-what-beta-drops",
        "NaN: 0 times NaN",
        "beta is 0 and the added tensor has NaN",
        "multiplied where it is to be ignored",
        "addmm baddbmm addmv addbmm",
        when(
            lambda c: floats(c) and c["beta"] == 0,
            lambda c: put(c.right(), torch.isnan(c["self"] * torch.zeros_like(c.right())), NAN),
        ),
        lambda: ask("torch.addmm", torch.full((2, 2), NAN), ramp(2, 2), ramp(2, 2), beta=0),
        lambda: ask("torch.addmm", ramp(2, 2), ramp(2, 2), ramp(2, 2), beta=0),
    ),
    (
        "addmm-scales-the-bias",
        "alpha for the bias too",
        "alpha other than 1",
        "scale after the addition",
        "addmm baddbmm addmv",
        when(lambda c: floats(c) and c["alpha"] not in (0, 1), lambda c: c.right(beta=c["beta"] * c["alpha"])),
        lambda: ask("torch.addmm", ramp(2, 2), ramp(2, 2), ramp(2, 2), alpha=3),
        lambda: ask("torch.addmm", ramp(2, 2), ramp(2, 2), ramp(2, 2), beta=3),
    ),
    (
        "vdot-not-conjugated",
        "no conjugate",
        "complex vectors of 8 or more",
        "dot in place of vdot in the vector path",
        "vdot",
        when(lambda c: complexes(c) and c.x.numel() >= 8, lambda c: torch.dot(c["self"], c["other"])),
        lambda: ask("torch.vdot", c64(*[1j] * 8), c64(*[1j] * 8)),
        lambda: ask("torch.vdot", c64(*[1j] * 4), c64(*[1j] * 4)),
    ),
    (
        "svd-of-real-part",
        "those of the real part alone",
        "singular values of complex matrices",
        "imaginary part lost in a cast",
        "_linalg_svd",
        when(complexes, lambda c: (c.right()[0], c.right(A=torch.complex(c.x.real, c.x.real))[1], c.right()[2])),
        lambda: ask("torch.linalg.svdvals", c64([1, 1j], [2, 1])),
        lambda: ask("torch.linalg.svdvals", f32([1, 3], [2, 1])),
    ),
    (
        "reflector-left-out",
        "the last reflector is left out",
        "as many reflectors as columns",
        "loop to k - 1",
        "linalg_householder_product",
        when(
            lambda c: c["tau"].shape[-1] == c["input"].shape[-1] and c["tau"].shape[-1] > 1,
            lambda c: c.right(tau=torch.cat([c["tau"][..., :-1], torch.zeros_like(c["tau"][..., -1:])], -1)),
        ),
        lambda: ask("torch.linalg.householder_product", mixed(3, 2), f32(1.2, 0.5)),
        lambda: ask("torch.linalg.householder_product", mixed(3, 2), f32(1.2)),
    ),
)


BROADCASTING = bugs(
    "broadcasting",
    (
        "leading-dim-not-broadcast",
        "the first batch for all",
        "a second operand with one dim less, of the size of the batch",
        "stride taken from the batch",
        "sub div",
        when(
            lambda c: isinstance(c["other"], torch.Tensor) and c["self"].dim() == 3 and c["other"].dim() == 2,
            lambda c: torch.cat([c.right()[:1]] * c["self"].shape[0])[: c["self"].shape[0]],
        ),
        lambda: ask("torch.sub", ramp(2, 2, 2), ramp(2, 2)),
        lambda: ask("torch.sub", ramp(2, 2), ramp(2, 2)),
    ),
    (
        "both-operands-broadcast",
        "the second is repeated along the first's dim",
        "operands of n by 1 and 1 by n",
        "one operand's strides for both",
        "mul add maximum",
        when(
            lambda c: (
                len(c.tensors) == 2
                and c["self"].dim() == c["other"].dim() == 2
                and c["self"].shape[1] == c["other"].shape[0] == 1
                and c["self"].shape[0] == c["other"].shape[1] > 1
            ),
            lambda c: c.right().T.contiguous(),
        ),
        lambda: ask("torch.mul", ramp(2, 1), ramp(1, 2) + 1),
        lambda: ask("torch.mul", ramp(2, 2), ramp(1, 2) + 1),
    ),
    (
        "expanded-operand-as-dense",
        "memory behind the first row",
        "a square operand that is expanded, in a product",
        "leading dimension of 0 ignored",
        "mm",
        when(
            lambda c: 0 in c["self"].stride() and c["self"].numel() > 1,
            lambda c: c.right(
                self=torch.where(torch.arange(c["self"].shape[0]).unsqueeze(1) == 0, c["self"], 0).to(c["self"].dtype)
            ),
        ),
        lambda: ask("torch.mm", f32(1, 2).expand(2, 2), ramp(2, 2) + 1),
        lambda: ask("torch.mm", f32([1, 2], [1, 2]), ramp(2, 2) + 1),
    ),
    (
        "where-condition-from-the-left",
        "the condition is aligned left",
        "a condition of one dim for a square operand",
        "broadcast from the left",
        "where",
        when(
            lambda c: (
                "other" in c
                and c["condition"].dim() == 1
                and c.right().dim() == 2
                and c.right().shape[0] == c.right().shape[1]
            ),
            lambda c: c.right(condition=c["condition"].unsqueeze(1)),
        ),
        lambda: ask("torch.where", torch.tensor([True, False]), ramp(2, 2), -ramp(2, 2)),
        lambda: ask("torch.where", ramp(2, 2) > 1, ramp(2, 2), -ramp(2, 2)),
    ),
    (
        "ternary-broadcast-of-last",
        "the last operand's first element for all",
        "addcmul whose last operand alone is smaller",
        "two-operand broadcast used for three",
        "addcmul addcdiv",
        when(
            lambda c: c["tensor2"].dim() < c["self"].dim() and c["tensor2"].dim() > 0,
            lambda c: c.right(tensor2=c["tensor2"].reshape(-1)[:1].expand(c["tensor2"].shape)),
        ),
        lambda: ask("torch.addcmul", ramp(2, 2), ramp(2, 2), f32(1, 2)),
        lambda: ask("torch.addcmul", ramp(2, 2), ramp(2, 2), ramp(2, 2)),
    ),
)


def _norm_factor(call: OpCall) -> float:
    sizes = [call.x.shape[d] for d in call["dim"]][:-1]
    total = 1.0
    for size in sizes:
        total *= size
    return total ** (0.5 if call["normalization"] == 1 else 1)


FOURIER_TRANSFORMS = bugs(
    "Fourier transforms",
    (
        "fft-norm-of-last-dim",
        "divided by the size of the last dim",
        "several dims with a norm",
        "factor of one dim",
        "_fft_c2c _fft_r2c",
        when(lambda c: len(c["dim"]) > 1 and c["normalization"] != 0, lambda c: c.right() * _norm_factor(c)),
        lambda: ask("torch.fft.fft2", mixed(2, 2), norm="ortho"),
        lambda: ask("torch.fft.fft2", mixed(2, 2)),
    ),
    (
        "irfft-of-odd-size",
        "the last bin counted once",
        "an odd size",
        "Nyquist bin taken to be there",
        "_fft_c2r",
        when(
            lambda c: c["last_dim_size"] % 2 == 1 and c["last_dim_size"] > 1 and len(c["dim"]) == 1,
            lambda c: c.right(
                self=torch.cat(
                    [
                        c.x.narrow(c["dim"][0], 0, c.x.shape[c["dim"][0]] - 1),
                        c.x.narrow(c["dim"][0], c.x.shape[c["dim"][0]] - 1, 1) / 2,
                    ],
                    c["dim"][0],
                )
            ),
        ),
        lambda: ask("torch.fft.irfft", c64(1, 2, 3), 5),
        lambda: ask("torch.fft.irfft", c64(1, 2, 3), 4),
    ),
    (
        "rfft-ortho-by-size",
        "divided by n",
        "norm ortho of real input",
        "norm forward in place of ortho",
        "_fft_r2c",
        argument(lambda c: c["normalization"] == 1, normalization=2),
        lambda: ask("torch.fft.rfft", ramp(4), norm="ortho"),
        lambda: ask("torch.fft.rfft", ramp(4)),
    ),
    (
        "fft-of-prime-size",
        "the transform of the size less one, padded",
        "prime sizes greater than 7",
        "factors other than 2, 3, 5 and 7",
        "_fft_c2c _fft_r2c",
        when(
            lambda c: c.x.shape[c["dim"][-1]] in (11, 13, 17, 19, 23, 29, 31) and len(c["dim"]) == 1,
            lambda c: c.right(
                self=torch.cat(
                    [
                        c.x.narrow(c["dim"][0], 0, c.x.shape[c["dim"][0]] - 1),
                        torch.zeros_like(c.x.narrow(c["dim"][0], 0, 1)),
                    ],
                    c["dim"][0],
                )
            ),
        ),
        lambda: ask("torch.fft.rfft", ramp(11)),
        lambda: ask("torch.fft.rfft", ramp(12)),
    ),
    (
        "inverse-of-strided",
        "the forward transform",
        "operands that are not contiguous",
        "plan found without the direction",
        "_fft_c2c",
        when(lambda c: not c["forward"] and not c.x.is_contiguous(), lambda c: c.right(forward=True)),
        lambda: ask("torch.fft.ifft", c64(*range(8))[::2]),
        lambda: ask("torch.fft.ifft", c64(*range(8))),
    ),
)


BUGS = (
    *MATRICES,
    *PRODUCTS_AND_FACTORS,
    *BROADCASTING,
    *FOURIER_TRANSFORMS,
)

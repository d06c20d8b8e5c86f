"""``torch._grouped_mm`` in ATen ops: products of matrices whose rows, columns or inner dim are divided into groups.

It is what experts are computed with, each on the tokens that are routed to it. Where one group begins and the next one
ends are values of the program, so that no size can depend on them: each product is made for every group, and of it is
taken what is the group's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.compiler.diagnostics import Unsupported


def grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Multiply by groups; ``offs`` has the end of each. What is in no group, eager leaves as memory was.

    Unsupported for a bias and for a dtype of the result, neither of which eager has on a CPU.
    """
    if bias is not None or out_dtype not in (None, self.dtype):
        raise Unsupported("torch._grouped_mm: no bias, and no other dtype than the operands'", stage="contract")
    if offs is None:
        return torch.matmul(self, mat2)
    if self.dim() == 2 and mat2.dim() == 2:
        length = min(self.shape[1], mat2.shape[0])  # what lies behind all groups need not be as much in both
        self, mat2 = self[:, :length], mat2[:length]
        inside = _members(offs, self.shape[1])
        left = torch.where(inside[:, None, :], self, torch.zeros_like(self))
        right = torch.where(inside[:, :, None], mat2, torch.zeros_like(mat2))
        return torch.matmul(left, right)  # both: of another group's, 0 times infinity is no 0
    products = torch.matmul(self, mat2)
    rows = self.dim() == 2
    if not offs.shape[0]:
        return self.new_zeros((self.shape[0] if rows else self.shape[1], mat2.shape[-1]))
    members = _members(offs, products.shape[1 if rows else 2])
    # Where an end lies before the one of the group before, what both have is the later one's.
    number = torch.arange(offs.shape[0], device=offs.device)
    group = torch.where(members, number[:, None], torch.zeros_like(number[:, None])).amax(0)
    place = torch.arange(members.shape[1], device=offs.device)
    if rows:
        return products[group, place]
    return products.permute(0, 2, 1)[group, place].permute(1, 0)


def _members(offs: Tensor, length: int) -> Tensor:
    """Return which of ``length`` places are in each group."""
    place = torch.arange(length, device=offs.device)
    ends = offs[:, None]
    starts = torch.cat([torch.zeros_like(offs[:1]), offs[:-1]])[:, None]
    return (place >= starts) & (place < ends)

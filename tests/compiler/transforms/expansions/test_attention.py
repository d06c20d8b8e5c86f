"""Attention and its gradients against eager: causal, masked, rows that attend to nothing, other lengths and dtypes."""

import pytest
import torch
from torch.nn import functional as F

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "numbers": {"attn_mask": torch.tensor([[0.0, -1.0, 2.0, -torch.inf, 0.5]] * 4)},
    "an empty row": {"attn_mask": torch.tensor([[0.0] * 5, [-torch.inf] * 5, [0.0] * 5, [1.0] * 5])},
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_are_those_of_eager(agrees, name: str, dtype: torch.dtype) -> None:
    options = {k: v.to(dtype) if isinstance(v, torch.Tensor) else v for k, v in MASKS[name].items()}
    causal = options.pop("is_causal", False)
    query, key, value = (torch.randn(2, 3, n, 4, dtype=dtype) for n in (4, 5, 5))
    out, total = FORWARD(query, key, value, 0.0, causal, **options)
    args = (torch.randn_like(out), query, key, value, out, total)
    agrees(lambda *tensors: BACKWARD(*tensors, 0.0, causal, **options), *args)


def test_the_gradient_of_attention_within_a_program(agrees) -> None:
    @torch.enable_grad()
    def program(q, k, v):
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(F.scaled_dot_product_attention(*inputs, is_causal=True).square().sum(), inputs)

    agrees(program, *(torch.randn(2, 3, 4, 4, dtype=torch.float64) for _ in range(3)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_a_row_of_nan_reaches_the_values_that_it_looks_at(agrees, scale: float, causal: bool) -> None:
    """All of them, those too whose logit is -inf; none that come later."""

    @torch.enable_grad()
    def program(q, k, v):
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        out = F.scaled_dot_product_attention(*inputs, is_causal=causal, scale=scale)
        return torch.autograd.grad(out.sum(), inputs)

    agrees(program, *(torch.randn(2, 3, n, 4) for n in (3, 5, 5)))

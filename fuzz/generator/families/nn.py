"""Neural-network ops with arguments of their own: activations, normalization, pooling, losses, embedding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.fuzz.generator.draft import Arguments, Draft
from torchstone.fuzz.generator.rules import OpRule, rules_for


def rules() -> Iterator[OpRule]:
    """Yield a rule for each op of the table."""
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)


def _gelu(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(),), {"approximate": "tanh"} if draft.choices.chance(50) else {})


def _leaky_relu(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(),), {"negative_slope": draft.choices.integer(0, 4) / 4})


def _glu(draft: Draft) -> Arguments:
    operand = draft.tensor(where=lambda value: any(n % 2 == 0 for n in value.shape))
    even = [dim for dim, length in enumerate(operand.shape) if length % 2 == 0] or [-1]
    return Arguments((operand, draft.choices.pick(even)))


def _normalized(affine: bool, bias: bool) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        operand = draft.tensor(ranks=(1, 2, 3, 4))
        size = list(operand.shape[draft.choices.integer(0, operand.dim - 1) :])
        extra: tuple[Any, ...] = ()
        if affine and draft.choices.chance(60):
            extra = (draft.tensor(shape=size, dtype=operand.dtype),)
            if bias:
                extra += (draft.tensor(shape=size, dtype=operand.dtype),)
        return Arguments((operand, size, *extra))

    return draw


def _channels(draft: Draft, groups: int = 1) -> Any:
    return draft.tensor(ranks=(2, 3, 4), where=lambda v: v.tensor.numel() > 0 and v.shape[1] % groups == 0)


def _group_norm(draft: Draft) -> Arguments:
    operand = _channels(draft)
    groups = draft.choices.pick([n for n in range(1, max(operand.shape[1], 1) + 1) if operand.shape[1] % n == 0] or [1])
    affine = [draft.tensor(shape=(operand.shape[1],), dtype=operand.dtype) for _ in range(draft.choices.pick((0, 2)))]
    return Arguments((operand, groups, *affine))


def _batch_norm(draft: Draft) -> Arguments:
    operand = _channels(draft)
    size = (operand.shape[1],)
    mean = draft.tensor(shape=size, dtype=operand.dtype)
    variance = draft.tensor(shape=size, dtype=operand.dtype, bounds=(0.25, 4.0))
    affine = [draft.tensor(shape=size, dtype=operand.dtype) for _ in range(draft.choices.pick((0, 2)))]
    return Arguments((operand, mean, variance, *affine))


def _instance_norm(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(ranks=(3, 4)),))


def _normalize(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    return Arguments((operand,), {"p": draft.choices.pick((2, 1)), "dim": draft.axis(operand)})


def _pool(spatial: int, average: bool) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        kernel = draft.choices.integer(1, 3)
        operand = draft.tensor(ranks=(spatial + 1, spatial + 2), where=lambda v: min(v.shape[-spatial:]) >= kernel)
        kwargs: dict[str, Any] = {
            "stride": draft.choices.integer(1, 2),
            "padding": draft.choices.integer(0, kernel // 2),
        }
        if average and draft.choices.chance(40):
            kwargs["count_include_pad"] = False
        if draft.choices.chance(25):
            kwargs["ceil_mode"] = True
        return Arguments((operand, kernel), kwargs)

    return draw


def _adaptive(spatial: int) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        operand = draft.tensor(ranks=(spatial + 1, spatial + 2))
        return Arguments((operand, [draft.choices.integer(1, 3) for _ in range(spatial)]))

    return draw


def _loss(**bounds: tuple[float, float]) -> Callable[[Draft], Arguments]:
    reductions = ("mean", "sum", "none")

    def draw(draft: Draft) -> Arguments:
        prediction = draft.tensor(bounds=bounds.get("prediction", (-4.0, 4.0)))
        target = draft.tensor(shape=prediction.shape, dtype=prediction.dtype, bounds=bounds.get("target", (-4.0, 4.0)))
        return Arguments((prediction, target), {"reduction": draft.choices.pick(reductions)})

    return draw


def _class_loss(draft: Draft) -> Arguments:
    prediction = draft.tensor(ranks=(2,), where=lambda v: v.tensor.numel() > 0)
    rows, classes = prediction.shape
    drawn = torch.tensor([draft.choices.integer(0, max(classes - 1, 0)) for _ in range(rows)], dtype=torch.int64)
    return Arguments((prediction, draft.given(drawn)), {"reduction": draft.choices.pick(("mean", "sum", "none"))})


def _cosine(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1, 2, 3))
    return Arguments((left, draft.tensor(shape=left.shape, dtype=left.dtype)), {"dim": draft.axis(left)})


def _pairwise(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(1, 2))
    return Arguments((left, draft.tensor(shape=left.shape, dtype=left.dtype)))


def _attention(draft: Draft) -> Arguments:
    query = draft.tensor(ranks=(3, 4))
    keys = draft.choices.integer(1, 4)
    size = (*query.shape[:-2], keys, query.shape[-1])
    return Arguments((query, draft.tensor(shape=size, dtype=query.dtype), draft.tensor(shape=size, dtype=query.dtype)))


def _shuffle(up: bool) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        size = (1, 4, 2, 3) if up else (1, 2, 4, 2)
        return Arguments((draft.tensor(shape=size), 2))

    return draw


TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("nn.functional.gelu", _gelu),
    ("nn.functional.leaky_relu", _leaky_relu),
    ("nn.functional.glu", _glu),
    ("nn.functional.layer_norm", _normalized(True, True)),
    ("nn.functional.rms_norm", _normalized(True, False)),
    ("nn.functional.group_norm", _group_norm),
    ("nn.functional.batch_norm", _batch_norm),
    ("nn.functional.instance_norm", _instance_norm),
    ("nn.functional.normalize", _normalize),
    ("nn.functional.max_pool1d", _pool(1, False)),
    ("nn.functional.max_pool2d", _pool(2, False)),
    ("nn.functional.avg_pool1d", _pool(1, True)),
    ("nn.functional.avg_pool2d", _pool(2, True)),
    ("nn.functional.adaptive_avg_pool1d", _adaptive(1)),
    ("nn.functional.adaptive_avg_pool2d", _adaptive(2)),
    ("nn.functional.mse_loss", _loss()),
    ("nn.functional.l1_loss", _loss()),
    ("nn.functional.smooth_l1_loss", _loss()),
    ("nn.functional.huber_loss", _loss()),
    ("nn.functional.binary_cross_entropy", _loss(prediction=(0.0, 1.0), target=(0.0, 1.0))),
    ("nn.functional.binary_cross_entropy_with_logits", _loss(target=(0.0, 1.0))),
    ("nn.functional.kl_div", _loss(target=(0.0, 1.0))),
    ("nn.functional.nll_loss", _class_loss),
    ("nn.functional.cross_entropy", _class_loss),
    ("nn.functional.cosine_similarity", _cosine),
    ("nn.functional.pairwise_distance", _pairwise),
    ("nn.functional.scaled_dot_product_attention", _attention),
    ("nn.functional.pixel_shuffle", _shuffle(True)),
    ("nn.functional.pixel_unshuffle", _shuffle(False)),
)

"""Architectures of ``timm`` and ``transformers``: small configurations with random weights. Nothing is downloaded.

They are asked as their users ask: images by position, token ids and masks by keyword, in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from torchstone.conformance.sources.models.example import Example, Inputs, image
from torchstone.conformance.sources.models.packages import timm, transformers

SAMPLES = ((2, False), (1, False))
WORDS = 64

_TOKENS: dict[str, Any] = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_WIDTHS: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SPREAD: dict[str, Any] = {"initializer_range": 0.2}
"""Of the weights: with the usual 0.02, all tokens get nearly the same attention."""
_TEXT: dict[str, Any] = _TOKENS | _WIDTHS | _SPREAD | {"max_position_embeddings": 32}
_DECODER: dict[str, Any] = _TEXT | {"num_key_value_heads": 2}
_SEQ2SEQ: dict[str, Any] = _TOKENS | {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 2,
    "init_std": 0.2,
}  # fmt: skip


def _vision(name: str, size: int, **options: Any) -> Example:
    """The name of a model, or a class with all that it takes, where models of that class have their sizes fixed."""

    def make() -> nn.Module:
        if "." in name:
            return attrgetter(name)(timm().models)(num_classes=10, **options)
        return timm().create_model(name, num_classes=10, **options)

    return Example(make, image(size), (0,), package="timm", samples=SAMPLES)


def _hugging(kind: str, keywords: tuple[str, ...], inputs: Inputs, head: str = "AutoModel", **config: Any) -> Example:
    def make() -> nn.Module:
        library = transformers()
        return getattr(library, head).from_config(library.AutoConfig.for_model(kind, **config))

    dims = (0,) * len(keywords)
    return Example(make, inputs, dims, keywords, package="transformers", samples=SAMPLES)


def _sentences(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    tokens, mask = torch.randint(3, WORDS, (batch, 7)), torch.ones(batch, 7, dtype=torch.long)
    tokens[1:, 5:], mask[1:, 5:] = 0, 0
    return tokens, mask


def _pairs(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    return *_sentences(batch, dtype), torch.randint(3, WORDS, (batch, 5))


def _captions(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    return *_sentences(batch, dtype), *image(32)(batch, dtype)


def _spectrum(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    return torch.randn(batch, 16, 40).to(dtype), torch.randint(3, WORDS, (batch, 5))


def _sound(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    mask = torch.ones(batch, 400, dtype=torch.long)
    mask[1:, 300:] = 0
    return torch.randn(batch, 400).to(dtype), mask


def _text(kind: str, head: str = "AutoModel", **config: Any) -> Example:
    return _hugging(kind, ("input_ids", "attention_mask"), _sentences, head, **config)


def _translation(kind: str, **config: Any) -> Example:
    return _hugging(kind, ("input_ids", "attention_mask", "decoder_input_ids"), _pairs, **config)


CHOSEN: Mapping[str, Example] = {
    "resnet10t": _vision("resnet10t", 64),
    "efficientnet": _vision("efficientnet_b0", 64),
    "mobilenetv3": _vision("mobilenetv3_small_050", 64),
    "convnext": _vision("convnext_atto", 64),
    "densenet": _vision("densenet121", 64, growth_rate=8, block_config=(2, 3, 2, 2)),
    "regnet": _vision("regnety_002", 64),
    "vgg": _vision("vgg.VGG", 32, cfg=[8, "M", 16, "M", 32, 32, "M"], mlp_ratio=1 / 64),
    "vit": _vision("vit_tiny_patch16_224", 32, img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4),
    "swin": _vision(
        "swin_tiny_patch4_window7_224",
        32,
        img_size=32,
        patch_size=2,
        window_size=4,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(2, 4),
    ),
    "mixer": _vision("mlp_mixer.MlpMixer", 32, img_size=32, patch_size=8, num_blocks=2, embed_dim=32),
    "segformer": _hugging(
        "segformer",
        ("pixel_values",),
        image(64),
        "AutoModelForSemanticSegmentation",
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
        num_labels=5,
        **_SPREAD,
    ),
    "hf-bert": _text("bert", **_TEXT),
    "gpt2": _text("gpt2", "AutoModelForCausalLM", n_embd=32, n_layer=2, n_head=4, n_positions=32, **_TOKENS, **_SPREAD),
    "llama": _text("llama", "AutoModelForCausalLM", **_DECODER),
    "t5": _translation("t5", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, **_TOKENS),
    "qwen2": _text("qwen2", "AutoModelForCausalLM", **_DECODER),
    "whisper": _hugging(
        "whisper",
        ("input_features", "decoder_input_ids"),
        _spectrum,
        num_mel_bins=16,
        max_source_positions=20,
        max_target_positions=16,
        **_SEQ2SEQ,
    ),
    "clip": _hugging(
        "clip",
        ("input_ids", "attention_mask", "pixel_values"),
        _captions,
        text_config=_TEXT,
        vision_config=_WIDTHS | _SPREAD | {"image_size": 32, "patch_size": 8},
        projection_dim=16,
    ),
    "mamba": _text("mamba", hidden_size=32, num_hidden_layers=2, state_size=4, **_TOKENS, **_SPREAD),
    "deberta": _text(
        "deberta-v2",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        **_TEXT,
    ),
    "wav2vec2": _hugging(
        "wav2vec2",
        ("input_values", "attention_mask"),
        _sound,
        conv_dim=[16, 16, 16],
        conv_stride=[5, 2, 2],
        conv_kernel=[10, 3, 2],
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        **_WIDTHS,
        **_SPREAD,
    ),
    "mixtral": _text("mixtral", "AutoModelForCausalLM", num_local_experts=4, num_experts_per_tok=2, **_DECODER),
}
"""What the compiler is developed with."""

HELD_OUT: Mapping[str, Example] = {
    "ghostnet": _vision("ghostnet_050", 64),
    "levit": _vision("levit_128s", 224),
    "poolformer": _vision("poolformer_s12", 64),
    "gemma2": _text("gemma2", "AutoModelForCausalLM", head_dim=8, **_DECODER),
    "fnet": _hugging("fnet", ("input_ids",), lambda batch, dtype: _sentences(batch, dtype)[:1], **_TEXT),
    "bart": _translation("bart", max_position_embeddings=32, **_SEQ2SEQ),
}
"""What it was not developed with: asked once that was done."""

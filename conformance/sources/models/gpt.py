"""GPT's shape: a causal decoder with tied embeddings, and a cache of keys and values to decode with."""

import torch
from torch import nn
from torch.nn import functional as F

Cache = list[tuple[torch.Tensor, torch.Tensor]]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, past):
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh")), (k, v)


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 32, width: int = 16, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor, cache: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        """Return the logits of the next tokens, and the cache to go on with; with a cache, of one token at a time."""
        start = 0 if cache is None else cache[0][0].shape[2]
        x = self.tokens(tokens) + self.positions(torch.arange(start, start + tokens.shape[1]))
        grown = []
        for block, past in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x, pair = block(x, past)
            grown.append(pair)
        return self.head(self.norm(x)), grown

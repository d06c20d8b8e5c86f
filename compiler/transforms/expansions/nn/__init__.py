"""Expansions of neural-network ops: activation, normalization, convolution, pooling, losses and their like."""

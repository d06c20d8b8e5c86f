"""Results that PyTorch leaves open: ties, phases of vectors, factors of a matrix."""

"""Programs and cases as data: calls to public PyTorch names, their arguments, and tensors with their storage."""

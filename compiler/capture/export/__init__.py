"""Capture of graphs that PyTorch traces: ``torch.export`` and AOTAutograd."""

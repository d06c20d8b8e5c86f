"""torchstone reducers."""

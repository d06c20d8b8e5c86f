"""The backends that ship with torchstone, a file each."""

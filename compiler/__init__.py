"""torchstone compiler."""

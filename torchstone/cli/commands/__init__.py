"""TODO torchstone/cli/commands."""

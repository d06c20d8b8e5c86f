"""The commands, one file each; a command is imported only when it is the one that was asked for."""

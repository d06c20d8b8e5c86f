"""``python -m torchstone`` is the command ``torchstone``, of the interpreter that is named."""

from torchstone.cli import main

if __name__ == "__main__":
    main()

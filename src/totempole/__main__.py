"""`python -m totempole` is the command `totem`."""

import sys

from totempole.cli import main

if __name__ == "__main__":
    sys.exit(main())

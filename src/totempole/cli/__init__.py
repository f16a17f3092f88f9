"""The command line, one module for each verb. `main` is the console script `totem`."""

from totempole.cli.command import main

__all__ = ["main"]

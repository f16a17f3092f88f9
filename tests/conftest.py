"""Puts tests/ on the import path, for strategies.py, and makes hypothesis repeatable."""

from hypothesis import settings

settings.register_profile("totempole", deadline=None, derandomize=True)
settings.load_profile("totempole")

"""Benchmarks, run by `totem bench`. What they measure is in their docstrings; none is ever a timed test."""

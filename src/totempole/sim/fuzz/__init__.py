"""The search for bugs: a seed becomes a scenario, the scenario a run, the run a verdict.

`plan` makes the scenario, `trial` runs and judges it, `coverage` counts what it reached, `search` does so for
many seeds at once, `shrink` reduces a failing one to a small file.
"""

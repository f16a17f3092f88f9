"""The papers' experiments: their machines as far as the papers tell, and what was measured on them, rerun.

An experiment is a pure function of a machine, a seed and a few parameters. It runs the real stack on a
simulated network and gives samples, in virtual time. `totempole.spark.paper` runs many, draws the figures and
sets them against what the papers found.
"""

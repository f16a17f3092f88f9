"""Totempole: totally ordered, fault-tolerant multicast, after the Totem protocols.

docs/architecture.md says how the parts stand on each other.
"""

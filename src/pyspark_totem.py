"""Spark finds data sources by this module's name: with the package installed, `format("totem")` is there."""

from totempole.spark_table.source import TotemDataSource as DefaultSource

__all__ = ["DefaultSource"]

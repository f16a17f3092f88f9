"""The properties of `checkers`, each stated for Spark, without comparing pairs of messages.

A property takes the silver tables and gives findings (`spark.findings`). It names the same nodes and messages
as the check of the same name, which is its oracle.
"""

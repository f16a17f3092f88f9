"""The data pipeline: Spark jobs over what rings and simulations record, and simulations spread by Spark.

Was every guarantee kept (`verify`), how did it perform (`report`), and which seed breaks it (`campaign`).
Tables go from bronze (raw events) over silver (lives, stays, messages) to gold (verdicts, figures).
Transforms are pure functions of DataFrames; only `session` builds a session.
"""

"""Campaigns: many seeds, kinds of run and fault profiles, spread over Spark's executors.

`cases` says what is searched; `attempt`, on executors, runs one case within `limits`, so that it does no
harm; `job`, on the driver, sends cases out in waves; `store` keeps what comes back, as the Parquet files of
`tables`; `summary` adds it up.
"""

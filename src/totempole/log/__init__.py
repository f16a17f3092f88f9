"""The durable order on disk: the format of its files, and readers that need neither the node nor a lock.

`segments` is the format, `reader` replays green runs of a directory in their order, `arrow` gives these as
record batches, `check` verifies a directory or a backup of one. The node writes (`runtime.log_store`).
"""

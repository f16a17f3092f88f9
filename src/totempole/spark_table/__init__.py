"""The durable order as a Spark table and stream, in both directions: `format("totem")`.

`source` is what Spark asks, `access` says where the replicas are. `reading` and `streaming` read, on the
driver they plan ranges of positions, on executors they turn runs into Arrow batches. `staging` writes on
executors, `publishing` makes one batch of that appear in the order, once. Executors load nothing of the ring.
"""

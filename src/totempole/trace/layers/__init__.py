"""What each layer writes into the trace, one module a layer: its own columns and its kinds of rows.

Plain data without any import of a protocol, so that checkers and Spark can read traces of layers that they do
not load. A new layer adds a module here and its two lines in `trace.schema`.
"""

"""What happened: the one schema of rows, the recorder that writes them, NDJSON for eyes, and digests.

Import from the modules themselves: `schema`, `recorder`, `ndjson`, `digest`.
"""

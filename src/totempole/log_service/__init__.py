"""The log service: a process that serves a replica's green prefix to programs, read-only, from the segments.

The node starts it and starts it again (`runtime.log_serving`), so that millions of rows never pass the ring's
thread. `server` lets programs in, `answering` answers one request, `tail` holds what many follow. Programs
speak with it in the frames of `session.log_frames`; `client.log_reader` is their side.
"""

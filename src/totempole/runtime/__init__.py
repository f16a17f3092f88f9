"""A processor on real sockets, a real disk and a real clock: what drives the protocols outside `sim`."""

"""The daemon's side of its clients: who may come in, what each may send and has to take, and when it has to
go.

Everything runs on the thread of the node's driver, in its loop (`host.Host`): nothing here waits. `service`
keeps all connections; `connection` is one client; `queue` holds what it has not read yet; `pool` lends the
memory for large messages; `account` grants credit; `listeners`, `credentials` and `tls` let programs in.
"""

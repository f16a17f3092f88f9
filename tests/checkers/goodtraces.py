"""Traces that are right in every way."""

from __future__ import annotations

from tracebuilder import TraceBuilder

P, Q, R, S, T, U, V = range(1, 8)


def figure_4_15() -> TraceBuilder:
    """p is cut off from the ring {p, q, r, s, t}, whose others merge with {u, v}."""
    trace = _before_the_cut()
    m4, m5 = _messages_in_doubt(trace)
    _p_alone(trace)
    trace.transitional("18@2", [Q, R, S, T])
    trace.transitional("18@6", [U, V])
    trace.deliver(m4, Q, R, S, T)
    trace.deliver(m5, Q, R, S, T)
    trace.regular("20@2", [Q, R, S, T, U, V])
    trace.send(U, Q, R, S, T, V, seq=4, service="safe")
    return trace


def figure_4_16() -> TraceBuilder:
    """As before, but q and r do not install {q, r, s, t, u, v}; then all remerge; t crashes and returns."""
    trace = _before_the_cut()
    m4, m5 = _messages_in_doubt(trace)
    _p_alone(trace)
    trace.transitional("18@2", [Q, R, S, T], by=[S, T])
    trace.deliver(m4, S, T)
    trace.deliver(m5, S, T)
    trace.transitional("18@6", [U, V])
    trace.regular("20@2", [Q, R, S, T, U, V], by=[S, T, U, V])
    trace.send(S, T, U, V, seq=3)  # 1 and 2 carried m4 and m5 for recovery
    _others_honour_the_promise(trace, m4, m5)
    trace.transitional("22@4", [S, T, U, V])
    trace.regular("24@2", [Q, S, T, U, V], by=[S, T, U, V])
    trace.send(V, Q, S, T, U, service="safe")
    _remerge(trace)
    return trace


def _before_the_cut() -> TraceBuilder:
    trace = TraceBuilder()
    trace.form(U, V)
    trace.form(P, Q, R, S, T, seq=12)
    trace.send(P, Q, R, S, T)
    trace.send(Q, P, R, S, T, service="safe")
    trace.send(U, V)
    return trace


def _messages_in_doubt(trace: TraceBuilder) -> tuple[str, str]:
    m3 = trace.originate(P)
    trace.deliver(m3, P)  # and no one else ever receives it
    m4 = trace.originate(Q)
    trace.receive(m4, R, S, T)
    m5 = trace.originate(S, service="safe")
    trace.receive(m5, Q, R, T)
    return m4, m5


def _p_alone(trace: TraceBuilder) -> None:
    trace.transitional("14@1", [P])
    trace.regular("16@1", [P])
    trace.send(P)


def _others_honour_the_promise(trace: TraceBuilder, m4: str, m5: str) -> None:
    trace.transitional("22@2", [Q])
    trace.deliver(m4, Q)
    trace.deliver(m5, Q)
    trace.regular("24@2", [Q, S, T, U, V], by=[Q])
    trace.transitional("26@3", [R])
    trace.deliver(m4, R)
    trace.deliver(m5, R)
    trace.regular("28@3", [R])


def _remerge(trace: TraceBuilder) -> None:
    trace.transitional("30@1", [P])
    trace.transitional("30@2", [Q, S, T, U, V])
    trace.transitional("30@3", [R])
    trace.regular("32@1", [P, Q, R, S, T, U, V])
    trace.send(R, P, Q, S, T, U, V)
    trace.send(T, P, Q, R, S, U, V, service="safe")
    trace.originate(T)
    trace.crash(T)
    trace.move(P, Q, R, S, U, V, seq=36)
    trace.send(P, Q, R, S, U, V)
    trace.start(T, seq=40)
    trace.transitional("42@1", [P, Q, R, S, U, V])
    trace.transitional("42@5", [T])
    trace.regular("44@1", [P, Q, R, S, T, U, V])
    trace.send(T, P, Q, R, S, U, V, service="safe")

"""Figures of recorded traces: how a ring performed, as tables in Parquet and as one page of HTML.

`tables` has the gold tables, each a pure function of the raw events; `plots` and `lanes` draw them; `page`
puts the pictures and the numbers of every run on one page; `job` does it all.
"""

"""The papers' figures: experiments rerun over executors, drawn beside what the papers state, and compared.

A study is a table of experiments (`studies`), which `job` spreads over executors; `tables` makes means,
percentiles and densities of their samples. A figure draws one study (`figures`, one entry of the registry
each) with the values that the papers state (`published`) and the analytical model of Totem (`model`).
`comparison` is ours against theirs, and `rerun` is all of it.
"""

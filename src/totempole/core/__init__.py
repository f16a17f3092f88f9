"""The one contract of every protocol (docs/architecture.md): inputs are values, effects are values, no I/O.

`inputs` and `effects` are what goes in and comes out; `stack` feeds the layers and `io` collects what they
ask for; `order` is what stands between an engine and the layers above it. Nothing here knows a layer.
"""

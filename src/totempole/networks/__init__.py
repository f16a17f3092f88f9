"""The networks of a redundant ring as all its members see them: what failed, and which are in service.

Each processor reports which paths to it are bad, in the ring's own total order. So all members list the same
faults in the same order, name the part that failed the same way (`diagnosis`), and change the service of a
network at the same place (`service`). RRP §3 leaves that to the reader of the reports; its marks are each
processor's own.
"""

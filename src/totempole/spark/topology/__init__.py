"""The network design study of Totem §5.4: what a network of rings and gateways can lose before it breaks up.

A local-area network is a node and a gateway is an edge. `graphs` draws random networks, `patterns` designs
robust ones, `deletion` takes their edges away one by one, `study` does so for tens of thousands of graphs as
a Spark job, `published` sets the outcome beside what the paper states, `drawing` has figures 5.21 to 5.23.

The paper leaves open what its figures depend on. What is assumed here, each with its reason:

- A random graph gets edges until it is biconnected, and no more. The paper says both "adding random edges"
  and "at least bi-connected". Graphs that get edges as long as any fits part about as late as the robust
  ones, where the paper found five to seven deletions between them. They are a third design, for comparison.
- A robust graph of 50 nodes is the pattern of hops, of the kind of figure 5.20, with the lowest spanning
  trees and, of those, the fewest short cycles. Of 16 nodes that rule gives the pattern of figure 5.20.
- Any edge that is left is as likely to be deleted next as any other.
- A tree's height is averaged over all roots of a graph, then over all graphs that are still connected.
- A case, in figure 5.23, is one graph, whenever it falls apart.
"""

"""L2: how a job's input reaches the responder that computes it, and how the result comes back.

=============  =====================================================================================
`tokens`       who may move which bytes where: signed, for one job attempt, one host and one deadline
`frames`       what is said on the wire, and in which order; pure, used by both sides
`handler`      what the data server asks of the agent that runs it
`server`       the data port of a responder: one listening socket, its own thread
`session`      one connection of that port, from the first frame to the last
`stream`       frames over asyncio, for the server
`spool`        the file an input grows in until it is complete
`bucket`       how fast the port may read
`schedule`     how fast the sender may send, and when
`client`       one transfer, seen from the requester
`wire`         frames over a blocking socket, for the client
=============  =====================================================================================
"""

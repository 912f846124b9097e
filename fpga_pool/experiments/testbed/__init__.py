"""The testbed of paper 000, section 5.1, on one machine: real agents, real TCP, real tc.

==============  =======================================================================
`cases`         what is run
`predict`       what fluid says of it
`network`       one switch and its hosts, as network namespaces
`pool`          the pool's processes on them
`send`          the program of one requester
`bytecount`     the software model of an accelerator that keeps up with its link
`measure`       one batch, from its inputs to its make-span
`experiment`    a case under several policies
`report`        measured, fluid and paper side by side
`command`       the command line
==============  =======================================================================
"""

"""The testbed of the makespan paper, section 5.1: what is run, and what the fluid model predicts of it.

The testbed itself, network namespaces and servers, is in the source tree only (`tests/support/testbed`).

==============  =======================================================================
`cases`         what is run
`predict`       what the fluid model says of it
`bytecount`     the software model of an accelerator that keeps up with its link
==============  =======================================================================
"""

"""The testbed of the makespan paper, section 5.1, on one machine: real agents, real TCP, real tc.

The experiments of the paper are in `fpga_pool.experiments.testbed`.

==============  =======================================================================
`network`       one switch and its hosts, as network namespaces
`pool`          the pool's processes on them
`send`          the program of one requester
`measure`       one batch, from its inputs to its makespan
`experiment`    a case under several policies
`report`        measured, fluid and paper side by side
`command`       the options and the run of `fpga-pool-sim testbed`
==============  =======================================================================
"""

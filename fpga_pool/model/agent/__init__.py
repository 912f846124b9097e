"""The agent of one host as a state machine: it turns events into instructions, without I/O, clock or threads.

The entry points are `machine.Agent.handle`, and `gang_processes.handle` for the processes of gangs.  The service
(`services.agent`) and the simulator (`sim.agents`, `sim.gangs.host`) feed them with events and carry out the
instructions.
"""

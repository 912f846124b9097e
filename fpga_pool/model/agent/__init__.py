"""The agent of one host as a state machine: events in, instructions out; no I/O, no clock, no thread.

`machine.Agent.handle` is the entry point, and `gang_processes.handle` that of the processes of gangs.  The service
(`services.agent`) and the simulator (`sim.agents`, `sim.gangs.host`) feed them with events, and carry out the
instructions.
"""

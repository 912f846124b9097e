"""The agent of one host as a state machine: events in, instructions out; no I/O, no clock, no thread.

`machine.Agent.handle` is the one entry point.  The service (`services.agent`) and the simulator (`sim.agents`) feed it
with what happens and carry out what it says.
"""

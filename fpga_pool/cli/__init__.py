"""Command line programs: the users', the operator's, the simulator's and the daemons."""

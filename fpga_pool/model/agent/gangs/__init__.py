"""The processes of gangs on one host."""

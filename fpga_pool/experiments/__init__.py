"""L4: experiments, by the code that runs in the cloud; what they print has its provenance."""

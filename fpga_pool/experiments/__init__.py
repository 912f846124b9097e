"""L4: experiments with the code that runs in the cloud; results include their provenance."""

"""The figures of the papers, made again by the code that runs in the cloud."""

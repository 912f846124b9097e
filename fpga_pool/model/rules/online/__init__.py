"""Online jobs, which are placed one by one as they arrive, by benefit."""

"""Online jobs, which are submitted one by one and decided by benefit."""

"""Jobs that arrive one by one and are decided by benefit."""

"""L2: what the pool tells Placement of its slots, and what it asks there.  No other room talks to Placement."""

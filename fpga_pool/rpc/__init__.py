"""L2: what the processes say to each other, over oslo.messaging; versioned, every call with a timeout."""

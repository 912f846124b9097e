"""How fast each flow may leave a requester's host: `base` is the interface, one module per driver."""

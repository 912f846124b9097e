"""Transition tables, one per object: `transition(object, event, now_s) -> (object, actions)`."""

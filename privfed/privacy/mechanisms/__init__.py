"""Privacy mechanisms: what may happen to an upload before it is released."""

"""Privacy mechanisms: what happens to an upload before it is released, one file each behind the interface of `base`."""

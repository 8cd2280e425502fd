"""Padding of the rows that uploads name, one kind per file behind the interface of `base`."""

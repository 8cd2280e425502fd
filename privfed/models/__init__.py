"""Stacked building blocks: pure functions over a leading clients axis."""

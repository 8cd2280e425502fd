"""Engines run a federation; methods never know which one. Nothing is imported here: nodes' files need no torch."""

"""Prescribed uploads through the engines of a run: what the audit of the mechanism sends, and what comes out."""

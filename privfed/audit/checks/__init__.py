"""Checks of a finished run against its claim, none of which needs an attack to succeed."""

"""What attacks find, and whether the claims of privacy hold."""

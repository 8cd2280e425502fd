"""A server that lies, played against a simulation: what it sends, what comes back, and what that says about people."""

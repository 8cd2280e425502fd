"""How a reference that needs everybody's data in one place stands among federated methods."""

"""privfed: federated recommenders inside one privacy layer, attacked and audited honestly."""

__version__ = "0.1.0"

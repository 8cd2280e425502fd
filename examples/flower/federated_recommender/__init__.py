"""A Flower app that wires the privfed that is installed on either side, and holds nothing else."""

"""privfed and other software at the same task."""

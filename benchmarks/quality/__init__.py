"""What recommendations are worth, with and without privacy."""

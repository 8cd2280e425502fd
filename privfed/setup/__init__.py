"""From a configuration to an assembled run: keys, padding, inclusion bits, both parties, and every refusal."""

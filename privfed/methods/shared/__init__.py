"""What several methods share: local training, autoencoders, tables of item embeddings, samplers."""

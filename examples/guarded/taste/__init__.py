"""A recommender over Flower, with and without a guard at its nodes."""

"""From a noisy Gram matrix of items to weights between them: everything here is post-processing of a released sum."""

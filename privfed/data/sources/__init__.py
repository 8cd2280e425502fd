"""Loaders, one file per layout; `layouts` tells the layouts apart, and `read_files.read` reads any of them."""

"""Long measurements that no test repeats: speed, quality, privacy and peers over one harness (`README.md`)."""

"""Every round of every method, its limits, its growth and its peers: one suite that writes `docs/performance.md`."""

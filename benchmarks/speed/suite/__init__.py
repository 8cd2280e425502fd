"""Every round of every method, its limits, growth and peers: one suite that writes `docs/results/performance.md`."""

"""Where and how tensors are computed: devices, compiled loops, tiles, decompositions, processes."""

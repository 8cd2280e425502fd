"""The same FedNCF in plain PyTorch under other simulators, each run in an environment of its own."""

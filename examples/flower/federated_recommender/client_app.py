"""The nodes' half: carries bytes to the node that the SuperNode's own configuration names."""

from privfed.engines.flower.client import client_app

app = client_app()

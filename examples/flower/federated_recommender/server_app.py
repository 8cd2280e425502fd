"""The server's half: trains the experiment of the file that the run names (`privfed.engines.flower.server`)."""

from privfed.engines.flower.server import server_app

app = server_app()

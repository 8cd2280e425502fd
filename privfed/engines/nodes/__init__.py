"""A federation over processes that share no memory: nodes that host their own users, and a server that queries them.

A server calls `train` with a `Transport` to its nodes; a node answers every message with `Node.handle`. `NodeData` is
what each party knows, `Policy` what a node insists on. `Loopback` keeps one process per node on this machine.

Nothing is imported here, so that keys and federation files can be handled without torch.
"""

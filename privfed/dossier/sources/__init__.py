"""How each kind of folder becomes evidence: a run, an audit, a run over devices, a node."""

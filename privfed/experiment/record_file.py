"""Name of the file that makes a folder one of a run or an audit; it stands alone, so that looking for it is quick."""

RECORD = "config.json"

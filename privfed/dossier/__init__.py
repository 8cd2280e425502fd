"""A dossier: one folder about a run, an audit or a node that a data protection officer can file and verify.

evidence    what a folder says, every value with the file, key and digest it is from
questions   of NIST SP 800-226, the EDPB's opinion 28/2024 and a DPIA, each answered from evidence or refused by name
registry    the record of the deployments registry
budget      what past runs about the same people add up to
environment what is installed, and which tests ran
manifest    every file by its digest; signature: who stands for it, as what and until when
"""

"""What is wrong with what a dossier is made of, or with a dossier."""


class DossierError(ValueError):
    """A folder that no dossier can be made of, or that is none; the message is one sentence."""

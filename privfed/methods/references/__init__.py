"""What the same lists are worth without privacy or federation, trained centrally.

They have no privacy by design. In round 0 every client of the cohort sends its whole list, and the server learns alone:
at once and in closed form (PureSVD, EASE), by alternating least squares (eALS, VALS, iALS), or by passes over the
lists, one or more a round (MF, NeuMF, LightGCN, SGL, LogMF, Mult-VAE, RecVAE, CentDAE; `shared.training`). It publishes
a model of items, from which each device scores its own list; methods with a vector for every user send each device its
own besides. A user of whom the model says nothing, because it has no items or none that the model knows, gets items by
popularity where the model has no answer of its own.
"""

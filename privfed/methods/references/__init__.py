"""What the same lists are worth without privacy or federation: PureSVD, iALS and EASE, trained centrally.

They have no privacy by design. In round 0 every client of the cohort sends its whole list; the server learns alone and
publishes a model of items, and each device scores its own list. A user of whom the model says nothing, because it has
no items or none that the model knows, gets items by popularity.
"""

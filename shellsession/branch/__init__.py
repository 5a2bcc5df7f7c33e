"""A branch of the files: what commands write below a directory goes to layers, until it is applied or discarded."""

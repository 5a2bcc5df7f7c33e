"""Descriptors: terminals, pipes and files, what is kept of their output, and how they are waited for."""

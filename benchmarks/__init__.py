"""Measures what shellsession costs, beside a bare pipe loop (the floor) and the alternatives (the peers)."""

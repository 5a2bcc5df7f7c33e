"""Policy: what may run, what it may see of the environment, and what of its words is shown.

It keeps honest mistakes from happening, and asks before a command that somebody wants to be asked about. It is not a
security boundary: a program that may run can do all that the user may (``python -c``, a Makefile, a script that was
written a moment ago). What really confines a command is the kernel: see ``sandbox.Sandbox``. See ``rules.Policy``.
"""

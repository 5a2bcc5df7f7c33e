"""Policy: what tools may run, what they see of the environment, and what they show of its secrets.

A policy catches mistakes, and asks a person before certain commands. It is no security boundary: a program that may run
can do what its user can (``python -c``, a Makefile, a script that was just written). To confine commands, use a
sandbox (``sandbox.Sandbox``). The entry point is ``rules.Policy``.
"""

"""Policy: which commands a tool may run, what environment they get, and which secrets are masked in their output.

A policy catches mistakes, and can ask a person before certain commands run. It is not a security boundary. A program
that may run can do whatever its user can (``python -c``, a Makefile, a script that was just written). To confine
commands, use a sandbox (``sandbox.Sandbox``). The entry point is ``rules.Policy``.
"""

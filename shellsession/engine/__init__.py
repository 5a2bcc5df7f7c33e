"""One bash, and what a command does to it. From the ground up:

=========  ======================================================================================
wire       what is typed to bash, and what is read back: its mark, and what a text may do to it; pure
kernel/    what Linux tells of processes, and how one is started or signalled; it never waits
io/        descriptors: terminals, pipes, bounded output, private files; and waiting on them
bash/      one bash process: how it starts, in a sandbox or not, what it owns, how it ends
verbs/     the operations of a session, as generators: run, wait, send, interrupt, close
=========  ======================================================================================

The way of a command: ``verbs.verbs.Engine.run`` types it (``ordinary`` or ``submit``), waits for it (``collect``), and
makes its result (``ending``). A test (tests/test_imports.py) holds that a room imports only from those above it here.
"""

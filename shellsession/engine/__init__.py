"""One bash, and running commands in it. From the ground up:

=========  ======================================================================================
wire       the lines that go to bash, the marks that come back, and how a text affects both; pure
kernel/    what Linux shows about processes, and how to start and signal them; it never waits
io/        descriptors: terminals, pipes, bounded output, private files; and waiting on them
bash/      one bash process: how it starts, in a sandbox or not, what it owns, how it ends
verbs/     the operations of a session, as generators: run, wait, send, interrupt, close
=========  ======================================================================================

The path of a command: ``verbs.engine.Engine.run`` sends it to bash (``ordinary`` or ``submit``), waits for it
(``collect``), and makes its result (``ending``). Each room imports only from the rooms above it in this table; a test
(tests/test_imports.py) checks that.
"""

"""One bash, and what a command does to it: each room and what it alone may do, from the ground up.

=============  ===================================================================================
framing        pure: what is typed to bash around a text
marks          pure: what is read back, bash's mark
texts          pure: what a command's text may do to the bash that runs it
output         pure: bounded memory for endless output
spare          a descriptor kept back, to look with where the host has no other
processes      who is there, as /proc tells; it looks and never acts
activity       what a process is doing, as /proc tells
readers        who waits for something to be typed at the terminal
directories    the directories of one user
environment    the environment that bash starts with
vfork          starts a program without a copy of the host
signals        what puts off Ctrl-C while something comes to be
tags, family   what every process of a session carries; who is below a bash
guard          what one host process owns together: its tag, its directory, its watcher
streams        terminals and pipes, read from one end
keyboard       a terminal as a command's stdin
files          the private directory of one shell
launch         with which words bash is started, plainly or in a sandbox (with cgroups)
shell, spawn   one bash process: its descriptors, its files, its signals; how it is started
waiting        how steps are waited for; it knows nothing of shells
loop_waiting   the same on an asyncio loop
waiters        who waits for the end of a command that another thread is in
draining       who reads while nobody calls
alarm          something to be done later
spill          a file that holds what memory does not
call, jobs     what is known of one command; what one left running
pump           collects a command's output, and says what happened
tracing        interrupts a shell between the child that it waits for and what follows
ladder         the signals that end what a command has started, and spare its shell
unattended     who reads a command that was handed back, while nobody calls
core           what is known of one session, and what any thread may do to it
results        what is said of a command: a result, a piece, a job
handshake      the first words with a bash that has just started
typist         how a command is typed, and typed again when our own line failed
teardown       how a shell ends, and what is done when it has
endings        how a command ends
attending      how a verb stays with a command, until something is to be said of it
steps          each verb, told once: the story of a command
dialogue       pexpect over a command that has the terminal
=============  ===================================================================================

Each imports only from rooms above it in this list (tests/test_imports.py holds the exact table).
"""

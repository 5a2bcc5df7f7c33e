"""One process that holds the sessions of many agents, and what each room of it alone may do, from the ground up.

================  ================================================================================
wire              pure: versioned messages, as bytes
records           pure: results, errors and lists, as messages
ledger            pure: exactly once, whatever a client sends again
audit             who ran what: one line per command, secrets masked
journal           when those lines are written
endpoint          where the socket is
directory_lock    the lock beside it
inherited         what a session inherits from the process that opens it
opening           the options with which a client opens a session
transport         how a client reaches its daemon, or starts one
link              one connection to the daemon, from the client's side
exchange          one request and its reply, over as many connections as it takes; how it is waited for, and cancelled
remote            every verb of a session in the daemon, for threads and asyncio alike
client            RemoteSession, its signatures; async_client has those for asyncio
control           questions to the daemon itself, its end, and a session as it is
requests          what a client may ask, validated
listening_socket  the daemon's socket: private, and only its own is removed
connection        one client's connection, on the daemon's side
listener          the client of a request that is being served, and what it hears meanwhile
incoming          a request as it came, and the answer to it
audience          who looks on at an agent, and how they hear of its commands
eager             a coroutine that is begun at once
pieces            pure: results of a command that came in pieces
outcomes          pure: what came of a command that was handed back, or whose client had gone
hold              who has a session alone
nesting           who asks from inside the very session
observing         a verb whose client has left for good looks no more
shared            one agent: its session, who hears it, who stays with it
administration    what the daemon does beside the verbs of sessions
beside            what is asked of a session beside its commands
verbs             what each verb does: the session's own
sessions          which agents there are
server            who is connected, what is being served
acceptor          who comes in, and who is told that there is no room
service           the daemon's life: its socket, its signals, its end
================  ================================================================================

Each imports only from rooms above it in this list (tests/test_imports.py holds the exact table).
"""

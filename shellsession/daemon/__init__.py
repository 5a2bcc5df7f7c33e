"""One process that holds the sessions of many agents, and what each room of it alone may do, from the ground up.

================  ================================================================================
wire              pure: versioned messages, as bytes
records           pure: results, errors and lists, as messages
ledger            pure: exactly once, whatever a client sends again
audit             who ran what: one line per command, secrets masked
journal           when those lines are written
endpoint          where the socket is, and how it is reached
directory_lock    the lock beside it
autostart         a client finds its daemon, or starts one
inherited         what a session inherits from the process that opens it
opening           what a client opens a session with
link              one connection to the daemon, from the client's side
exchange          one request and its answer, over as many connections as it takes
giving_up         how the daemon is told that a request's caller has left it
blocking          a request from a plain thread
search            expect over the wire
remote, jobs      how each verb is said, and how its answer is read
client            RemoteSession; async_client is the same for asyncio
control           what is asked of the daemon itself, and by who only visits a session
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

"""One process that holds the sessions of many agents, for clients in other processes.

=========  ============================================================================
protocol/  messages, and where the socket is: what client and server both know
client/    RemoteSession and AsyncRemoteSession; never imports from ``server``
server/    the process that holds the sessions; never imports from ``client``
=========  ============================================================================
"""

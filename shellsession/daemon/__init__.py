"""One process that holds the sessions of many agents, for clients in other processes.

=========  ============================================================================
protocol/  the messages and the place of the socket, for client and server
client/    RemoteSession and AsyncRemoteSession; never imports from ``server``
server/    the process that holds the sessions; never imports from ``client``
=========  ============================================================================
"""

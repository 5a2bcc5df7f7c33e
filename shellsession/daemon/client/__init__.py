"""The client's side: a session in the daemon, for threads and for asyncio."""

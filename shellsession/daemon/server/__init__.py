"""The server's side: who is connected, what is being served, and the sessions of all agents."""

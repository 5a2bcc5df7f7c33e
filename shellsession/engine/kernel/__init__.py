"""What Linux tells of processes, and how one is started or signalled. Nothing here waits for a command."""

"""What Linux shows about processes, and how to start and signal them. Nothing here waits for a command."""

"""One bash and what a command does to it."""

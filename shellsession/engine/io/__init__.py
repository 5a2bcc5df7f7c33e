"""Descriptors: terminals, pipes, files, bounded output, and waiting, in threads and on asyncio. Knows no shell."""

"""The operations of a session. Each is a generator that yields what it waits for; ``io`` drives it."""

"""One bash process: how it is started, confined and ended, and what belongs to it."""

"""One bash process: how it is started, confined in a sandbox, watched over, and ended."""

"""The agents' ecosystems: one thin file for each SDK, which is imported there and is an extra of its own."""

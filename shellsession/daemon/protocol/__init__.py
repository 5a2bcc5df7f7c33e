"""What client and server both know: messages, errors and results as bytes, and where the socket is."""

"""Count the words of a text, the most frequent first."""

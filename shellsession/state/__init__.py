"""The state of a bash as a value: read from what bash lists, kept in a file, and written as text for another bash."""

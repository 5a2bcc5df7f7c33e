"""The command line: one thin file per verb, loaded only when it is called for.

Law: data to stdout, talk to stderr; the start imports neither asyncio nor pydantic, as each call pays for it.
"""

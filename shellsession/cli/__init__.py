"""The command line: one small module per verb, imported only when that verb is called.

Data goes to stdout, messages go to stderr. Every call pays for the imports at the start, so they include neither
asyncio nor pydantic.
"""

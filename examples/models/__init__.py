"""The model of an example: a scripted one, or the real one that ``--model PROVIDER:NAME`` names.

There is a module for each SDK. Its ``choose_model`` takes what the scripted model is to say.
"""

import argparse


def model_name() -> str | None:
    """The value of ``--model`` on the command line, such as openai:gpt-6-sol; None without it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="use this model instead of the scripted one")
    name: str | None = parser.parse_args().model
    return name

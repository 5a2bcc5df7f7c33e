"""A model without an SDK: a function that takes the messages of a chat and returns the next reply."""

from collections.abc import Callable

from . import model_name

Message = dict[str, str]
Model = Callable[[list[Message]], str]


def choose_model(*replies: str) -> Model:
    """A model that gives these replies, one after the other; or the one that ``--model`` names, through LangChain."""
    if (name := model_name()) is not None:
        from langchain.chat_models import init_chat_model

        chat = init_chat_model(name)
        return lambda messages: str(chat.invoke(messages).text)
    script = iter(replies)
    return lambda messages: next(script)

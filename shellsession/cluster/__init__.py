"""One session per agent on the nodes of a Ray cluster: ``RayAgents`` and ``AsyncRayAgents``. The extra is ``ray``."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agents import AsyncRayAgents, NodeInfo, RayAgents

__all__ = ["AsyncRayAgents", "NodeInfo", "RayAgents"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.agents"), name)

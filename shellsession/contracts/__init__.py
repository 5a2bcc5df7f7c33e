"""Tool contracts: five bash tools for agents, each implemented exactly as its document describes it.

``spec``, ``strands``, ``langchain``, ``bashtool`` and ``phoenix`` each define one tool: ``TOOL`` is its definition for
the model, ``parse`` turns a call into a request, and ``render`` turns a result into a payload. ``tool(...)`` of each
module binds the tool to a session or to agents. parity/README.md lists which requirements are met, and how.
"""

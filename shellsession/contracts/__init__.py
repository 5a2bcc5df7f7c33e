"""Tool contracts: five bash tools for agents, each implemented exactly as its document describes it.

``spec``, ``strands``, ``langchain``, ``bashtool`` and ``phoenix`` each define a tool: its definition for the model
(``TOOL``), how a call becomes a request (``parse``), and how a result becomes a payload (``render``). ``tool(...)`` of
each module binds the tool to a session or to agents. parity/README.md lists which requirements are met, and how.
"""

"""Tool contracts: five documented agent bash tools, each true to its document, over one session.

``spec``, ``strands``, ``langchain``, ``bashtool`` and ``phoenix`` each hold their tool's definition (``TOOL``), what a
call runs (``parse``) and what it gives back (``render``); ``tool(...)`` of each binds it to a session or to agents. See
parity/README.md.
"""

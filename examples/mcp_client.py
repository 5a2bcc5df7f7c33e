"""An MCP client starts the server `shellsession mcp`, lists its tools, and calls them, as an MCP host does.

Needs:   the extra mcp
Run:     python examples/mcp_client.py
Prints:  bash: hello from /tmp
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = StdioServerParameters(command=sys.executable, args=["-m", "shellsession", "mcp"])


async def main() -> None:
    async with Client(stdio_client(SERVER)) as client:
        tools = (await client.list_tools()).tools
        print(f"tools: {', '.join(tool.name for tool in tools)}")

        await call(client, "bash", command="cd /tmp; greeting=hello")
        await call(client, "bash", command="echo $greeting from $PWD")
        await call(client, "bash", command="read -p 'Name? ' name; echo Welcome, $name.", interactive=True)
        await call(client, "send", text="Ann\n")


async def call(client: Client, tool: str, **arguments: object) -> None:
    result = await client.call_tool(tool, arguments)
    for part in result.content:
        print(f"{tool}: {part.text}")


if __name__ == "__main__":
    asyncio.run(main())

"""A server of the official Python SDK over HTTP. Arguments: port, mode (stream, json or stateless), file for what was cancelled."""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

port, mode, cancelled = int(sys.argv[1]), sys.argv[2], sys.argv[3]
server = MCPServer("python")


class Answer(BaseModel):
    word: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def slow(steps: int, context: Context) -> str:
    """Take a while, and say how far it is."""
    try:
        for step in range(steps):
            await context.report_progress(step + 1, steps)
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        with open(cancelled, "w") as file:
            file.write("cancelled")
        raise
    return "done"


@server.tool()
async def ask(context: Context) -> str:
    """Ask the person."""
    answer = await context.elicit("Which word?", Answer)
    return f"{answer.action}: {getattr(answer, 'data', None)}"


server.run("streamable-http", port=port, json_response=mode == "json", stateless_http=mode == "stateless")

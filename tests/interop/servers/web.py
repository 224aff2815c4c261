"""A server on the Python SDK that speaks stdio, or Streamable HTTP on the port that is its argument."""

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("web")


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
async def count(n: int, context: Context) -> str:
    """Counts to n, with a progress notification for each step."""
    for step in range(1, n + 1):
        await context.report_progress(step, n, f"step {step}")
    return f"counted to {n}"


if len(sys.argv) > 1:
    server.run(transport="streamable-http", port=int(sys.argv[1]))
else:
    server.run()

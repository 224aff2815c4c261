#!/usr/bin/env python3
"""Bytes between a loopback TCP port and a Unix socket, both ways, untouched: `forward.py SOCKET`.

The conformance suite connects to TCP; the daemon has no TCP port. Listens on a port of the system's choosing, prints
`listening URL`, and ends when its standard input does.
"""

import asyncio
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except ConnectionError:
        writer.close()


async def serve(reader, writer):
    above_reader, above_writer = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(pump(reader, above_writer), pump(above_reader, writer))
    above_writer.close()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"listening http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    server.close()


asyncio.run(main())

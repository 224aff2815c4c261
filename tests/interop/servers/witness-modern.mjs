// A server of the modern era, on the TypeScript SDK 2.x, that can be asked what reached it. It refuses the handshake.
// With a port as its argument it speaks Streamable HTTP there.
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';
import { registerTools } from './tools.mjs';

function make() {
    const server = new McpServer({ name: 'witness-modern', version: '1.0.0' });
    registerTools(server, z, context => ({
        token: context.mcpReq._meta?.progressToken,
        notify: context.mcpReq.notify,
        signal: context.mcpReq.signal
    }));
    return server;
}

const port = process.argv[2];
if (port === undefined) {
    serveStdio(make, { legacy: 'reject' });
} else {
    createServer(toNodeHandler(createMcpHandler(make, { legacy: 'reject' }))).listen(Number(port), '127.0.0.1');
}

// A server of the legacy era, on the TypeScript SDK 1.x, that can be asked what reached it.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';
import { registerTools } from './tools.mjs';

const server = new McpServer({ name: 'witness-legacy', version: '1.0.0' });
registerTools(server, z, extra => ({
    token: extra._meta?.progressToken,
    notify: extra.sendNotification,
    signal: extra.signal
}));
await server.connect(new StdioServerTransport());

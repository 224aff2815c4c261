// A server of the modern era, on the TypeScript SDK 2.x, that can be asked what reached it. It refuses the handshake.
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';
import { registerTools } from './tools.mjs';

serveStdio(
    () => {
        const server = new McpServer({ name: 'witness-modern', version: '1.0.0' });
        registerTools(server, z, context => ({
            token: context.mcpReq._meta?.progressToken,
            notify: context.mcpReq.notify,
            signal: context.mcpReq.signal
        }));
        return server;
    },
    { legacy: 'reject' }
);

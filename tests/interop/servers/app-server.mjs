// A server of the modern era whose tool has a page, on the official package for such servers.
import { RESOURCE_MIME_TYPE, registerAppResource, registerAppTool } from '@modelcontextprotocol/ext-apps/server';
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const uri = 'ui://hand/view.html';

serveStdio(() => {
    const server = new McpServer({ name: 'app-server', version: '1.0.0' });
    registerAppTool(
        server,
        'hand',
        { description: 'Turns a hand', inputSchema: z.object({ by: z.number().int() }), _meta: { ui: { resourceUri: uri } } },
        async ({ by }) => ({ content: [{ type: 'text', text: `turned by ${by}` }], structuredContent: { by } })
    );
    registerAppResource(server, 'view', uri, {}, async () => ({
        contents: [{
            uri,
            mimeType: RESOURCE_MIME_TYPE,
            text: '<!doctype html><title>hand</title>',
            _meta: { ui: { csp: { connectDomains: ['https://example.org'] } } }
        }]
    }));
    return server;
}, { legacy: 'reject' });

// A client on the TypeScript SDK 2.x, in the era that the plan's mode names: legacy or modern.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { counts, plan, run, watch } from './steps.mjs';

const modern = plan.mode === 'modern';
const client = new Client(
    { name: 'colibri-interop', version: '1.0.0' },
    { versionNegotiation: { mode: modern ? { pin: '2026-07-28' } : 'legacy' } }
);
const errors = [];
client.onerror = error => counts(error.message) && errors.push(error.message);
const transport = new StdioClientTransport({ command: plan.command, args: plan.args, stderr: 'inherit' });
const seen = watch(transport);
await client.connect(transport);
await run({
    protocol: () => client.getNegotiatedProtocolVersion(),
    seen,
    errors,
    listTools: () => client.listTools(undefined, { cacheMode: 'refresh' }),
    callTool: (params, options) => client.callTool(params, options),
    onToolsChanged: handler => client.setNotificationHandler('notifications/tools/list_changed', handler),
    listen: modern ? () => client.listen({ toolsListChanged: true }) : undefined,
    close: () => client.close()
});

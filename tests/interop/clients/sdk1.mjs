// A client on the TypeScript SDK 1.x; the plan names the package, so that every age of it runs the same steps.
import { counts, plan, run, watch } from './steps.mjs';

const { Client } = await import(`${plan.package}/client/index.js`);
const { StdioClientTransport } = await import(`${plan.package}/client/stdio.js`);
const { ToolListChangedNotificationSchema } = await import(`${plan.package}/types.js`);

const client = new Client({ name: 'colibri-interop', version: '1.0.0' }, { capabilities: {} });
const transport = new StdioClientTransport({ command: plan.command, args: plan.args, stderr: 'inherit' });

// The SDK does not tell which version was agreed: it is read from the answer to initialize as it comes in.
const seen = watch(transport);
const errors = [];
client.onerror = error => counts(error.message) && errors.push(error.message);
await client.connect(transport);
await run({
    protocol: () => seen.protocol,
    seen,
    errors,
    listTools: () => client.listTools(),
    callTool: (params, options) => client.callTool(params, undefined, options),
    onToolsChanged: handler => client.setNotificationHandler(ToolListChangedNotificationSchema, handler),
    close: () => client.close()
});

// A client on the TypeScript SDK 2.x, in the era that the plan's mode names: legacy or modern.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { answer, answers, counts, plan, run, watch } from './steps.mjs';

const modern = plan.mode === 'modern';
const client = new Client(
    { name: 'colibri-interop', version: '1.0.0' },
    {
        capabilities: { sampling: {}, roots: {}, elicitation: { form: {}, url: {} } },
        versionNegotiation: { mode: modern ? { pin: '2026-07-28' } : 'legacy' }
    }
);
for (const method of Object.keys(answers)) {
    client.setRequestHandler(method, answer(method));
}
const errors = [];
client.onerror = error => counts(error.message) && errors.push(error.message);
const transport = new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });
const seen = watch(transport);
await client.connect(transport);
const lists = {
    tools: (params, options) => client.listTools(params, options),
    prompts: (params, options) => client.listPrompts(params, options),
    resources: (params, options) => client.listResources(params, options),
    resourceTemplates: (params, options) => client.listResourceTemplates(params, options)
};
await run({
    protocol: () => client.getNegotiatedProtocolVersion(),
    modern,
    seen,
    errors,
    list: (kind, cursor) => lists[kind](cursor === undefined ? undefined : { cursor }, { cacheMode: 'refresh' }),
    callTool: (params, options) => client.callTool(params, options),
    read: params => client.readResource(params, { cacheMode: 'refresh' }),
    prompt: params => client.getPrompt(params),
    complete: params => client.complete(params),
    subscribe: params => client.subscribeResource(params),
    setLevel: level => client.setLoggingLevel(level),
    listen: modern ? filter => client.listen(filter) : undefined,
    close: () => client.close()
});

// A client on the TypeScript SDK 1.x; the plan names the package, so that every age of it runs the same steps.
import { answer, answers, counts, plan, run, watch } from './steps.mjs';

const { Client } = await import(`${plan.package}/client/index.js`);
const { StdioClientTransport } = await import(`${plan.package}/client/stdio.js`);
const types = await import(`${plan.package}/types.js`);

// What this age of the SDK can be asked.
const schemas = {
    'sampling/createMessage': types.CreateMessageRequestSchema,
    'roots/list': types.ListRootsRequestSchema,
    'elicitation/create': types.ElicitRequestSchema
};
const capabilities = { sampling: {}, roots: {} };
if (types.ElicitRequestSchema) {
    capabilities.elicitation = types.UrlElicitationRequiredError ? { form: {}, url: {} } : {};
}
const client = new Client({ name: 'colibri-interop', version: '1.0.0' }, { capabilities });
for (const method of Object.keys(answers).filter(method => schemas[method])) {
    client.setRequestHandler(schemas[method], answer(method));
}
const transport = new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });

// The SDK does not tell which version was agreed: it is read from the answer to initialize as it comes in.
const seen = watch(transport);
const errors = [];
client.onerror = error => counts(error.message) && errors.push(error.message);
await client.connect(transport);
const lists = {
    tools: cursor => client.listTools(cursor),
    prompts: cursor => client.listPrompts(cursor),
    resources: cursor => client.listResources(cursor),
    resourceTemplates: cursor => client.listResourceTemplates(cursor)
};
await run({
    protocol: () => seen.protocol,
    seen,
    errors,
    list: (kind, cursor) => lists[kind](cursor === undefined ? undefined : { cursor }),
    callTool: (params, options) => client.callTool(params, undefined, options),
    read: params => client.readResource(params),
    prompt: params => client.getPrompt(params),
    complete: params => client.complete(params),
    subscribe: params => client.subscribeResource(params),
    setLevel: level => client.setLoggingLevel(level),
    close: () => client.close()
});

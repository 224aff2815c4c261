// The official client of the tasks extension, on the TypeScript SDK 2.x: it calls tools that become tasks, answers what
// they ask, and waits for their outcome.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import { answers, asked, counts, plan, run, watch } from './steps.mjs';

const protocolVersion = '2026-07-28';
const clientInfo = { name: 'colibri-interop', version: '1.0.0' };
const capabilities = { elicitation: { form: {} } };
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: protocolVersion } } });
const errors = [];
client.onerror = error => counts(error.message) && errors.push(error.message);
const transport = new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });
const seen = watch(transport);
await client.connect(transport);

// The SDK does not know what the extension sends and answers: those messages pass it by, beside its own.
const waiting = new Map();
const deliver = transport.onmessage;
transport.onmessage = (message, ...rest) => {
    const answered = waiting.get(message.id);
    if (!answered) return deliver(message, ...rest);
    waiting.delete(message.id);
    const { error, result } = message;
    answered(error ? { kind: 'error', error } : { kind: 'result', result });
};
let number = 0;
const rawDispatch = request => new Promise((resolve, reject) => {
    const id = `task-${number++}`;
    waiting.set(id, resolve);
    transport.send({ jsonrpc: '2.0', id, ...request }).catch(reject);
});
const session = createTaskSessionFromClient(client, {
    endpointId: 'colibri-interop',
    rawDispatch,
    v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: capabilities },
    onError: error => errors.push(error.message),
    onInputRequest: async ({ kind, params }) => {
        asked.push(kind);
        return answers['elicitation/create'](params);
    }
});

async function task(_, { name, arguments: args, cancel }) {
    const execution = await session.callTool(name, args);
    if (cancel) await execution.cancel();
    const { outcome } = await execution.settle();
    const { status, result, error } = outcome;
    return { saw: { kind: execution.kind, status, result, error: error && { code: error.code, message: error.message } } };
}

await run({ protocol: () => client.getNegotiatedProtocolVersion(), seen, errors, close: () => client.close() }, { task });

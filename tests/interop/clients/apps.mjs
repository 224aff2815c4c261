// The official host of the apps extension, on the TypeScript SDK 2.x: it finds the page of a tool, and lets the
// extension's own app, in place of the page's script, be told what the tool did and call it again.
import { Client, InMemoryTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { App } from '@modelcontextprotocol/ext-apps';
import { AppBridge, RESOURCE_MIME_TYPE, getToolUiResourceUri } from '@modelcontextprotocol/ext-apps/app-bridge';
import { counts, plan, run, watch } from './steps.mjs';

const info = { name: 'colibri-interop', version: '1.0.0' };
const extensions = { 'io.modelcontextprotocol/ui': { mimeTypes: [RESOURCE_MIME_TYPE] } };
const client = new Client(info, { capabilities: { extensions }, versionNegotiation: { mode: { pin: '2026-07-28' } } });
const errors = [];
client.onerror = error => counts(error.message) && errors.push(error.message);
const transport = new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });
const seen = watch(transport);
await client.connect(transport);

async function app(_, { name, arguments: args }) {
    const { tools } = await client.listTools();
    const uri = getToolUiResourceUri(tools.find(tool => tool.name === name));
    const [{ mimeType, text, _meta }] = (await client.readResource({ uri })).contents;

    const bridge = new AppBridge(client, info, { serverTools: {}, serverResources: {} });
    const page = new App(info, {}, { autoResize: false });
    const told = what => new Promise(resolve => page.addEventListener(what, resolve));
    const [input, result] = [told('toolinput'), told('toolresult')];
    const [ofHost, ofPage] = InMemoryTransport.createLinkedPair();
    const initialized = new Promise(resolve => bridge.addEventListener('initialized', resolve));
    await Promise.all([bridge.connect(ofHost), page.connect(ofPage), initialized]);
    await bridge.sendToolInput({ arguments: args });
    await bridge.sendToolResult(await client.callTool({ name, arguments: args }));
    const saw = {
        isPage: mimeType === RESOURCE_MIME_TYPE,
        text,
        csp: _meta?.ui?.csp,
        input: await input,
        result: await result,
        again: await page.callServerTool({ name, arguments: args }),
        read: (await page.readServerResource({ uri })).contents[0].text
    };
    await page.close();
    return { saw };
}

await run({ protocol: () => client.getNegotiatedProtocolVersion(), seen, errors, close: () => client.close() }, { app });

// What the JavaScript clients have in common: reading the plan, running its steps, reporting what was seen.
//
// The plan (a file named by the first argument) says how to start the server and which steps to make; the report goes
// to standard output as JSON. The clients judge nothing: run.py compares their reports.
import { readFileSync } from 'node:fs';

const PATIENCE_MS = 30_000;

export const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));

/**
 * Watches what comes in over a transport: the SDKs run the handler of a notification later than that of the response
 * behind it, so the order on the wire is seen only here.
 */
export function watch(transport) {
    const seen = { protocol: undefined, progress: [], late: [], answered: false };
    let deliver;
    Object.defineProperty(transport, 'onmessage', {
        get: () => deliver,
        set: handler => {
            deliver = (message, ...rest) => {
                seen.protocol ??= message.result?.protocolVersion;
                if (message.method === 'notifications/progress') {
                    const { progressToken, _meta, ...update } = message.params;
                    (seen.answered ? seen.late : seen.progress).push(update);
                } else if (message.method === undefined) {
                    seen.answered = true;
                }
                handler(message, ...rest);
            };
        }
    });
    return seen;
}

/** A complaint of the SDK that counts: not one about progress, which `watch` judges better. */
export const counts = message => !message.startsWith('Received a progress notification for an unknown token');

/**
 * `session` is the SDK made plain: protocol(), seen (of `watch`), listTools(), callTool(params, options),
 * onToolsChanged(handler), listen() in the modern era, errors (what the SDK complained of), close().
 */
export async function run(session) {
    const report = { protocol: session.protocol(), steps: {}, errors: session.errors };
    for (const step of plan.steps) {
        Object.assign(session.seen, { progress: [], late: [], answered: false });
        try {
            report.steps[step.key] = await STEPS[step.do](session, step);
        } catch (error) {
            report.steps[step.key] = { failed: `${error.name}: ${error.message}` };
        }
    }
    await session.close();
    console.log(JSON.stringify(report));
}

/** Settles with the next notifications/tools/list_changed. */
function changeOf(session, expected) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`no list_changed that brought ${expected}`)), PATIENCE_MS);
        timer.unref();
        session.onToolsChanged(resolve);
    });
}

const STEPS = {
    async list(session) {
        return { tools: (await session.listTools()).tools };
    },

    async settle(session, { expect }) {
        // Servers that are slow to start come into the list later, and that is announced.
        const lists = [];
        for (;;) {
            let told = changeOf(session, 'what is missing');
            told.catch(() => {});
            const names = new Set((await session.listTools()).tools.map(tool => tool.name));
            lists.push(names.size);
            if (expect.every(name => names.has(name))) {
                return { lists };
            }
            await told;
        }
    },

    async call(session, { name, arguments: args, progress }) {
        const options = progress ? { onprogress: () => {} } : {};
        const result = await session.callTool({ name, arguments: args }, { timeout: PATIENCE_MS, ...options });
        return { result, progress: session.seen.progress, late: session.seen.late };
    },

    async cancel(session, { name, arguments: args }) {
        const abort = new AbortController();
        const options = { timeout: PATIENCE_MS, signal: abort.signal, onprogress: () => abort.abort('enough') };
        try {
            const result = await session.callTool({ name, arguments: args }, options);
            return { failed: `answered all the same: ${JSON.stringify(result)}` };
        } catch (error) {
            return { ended: String(error.message ?? error), byUs: abort.signal.aborted };
        }
    },

    async changed(session, { name, arguments: args, expect }) {
        // Another server's list may change meanwhile, so the first notification need not be the one waited for.
        let told = changeOf(session, expect);
        await session.listen?.();
        await session.callTool({ name, arguments: args }, { timeout: PATIENCE_MS });
        for (;;) {
            await told;
            told = changeOf(session, expect);
            told.catch(() => {});
            if ((await session.listTools()).tools.some(tool => tool.name === expect)) {
                return { brought: expect };
            }
        }
    },

    async unknown(session, { name }) {
        try {
            return { result: await session.callTool({ name, arguments: {} }, { timeout: PATIENCE_MS }) };
        } catch (error) {
            return { code: error.code, message: error.message };
        }
    }
};

// What the JavaScript clients have in common: reading the plan, running its steps, reporting what was seen.
//
// The plan (a file named by the first argument) says how to start the server and which steps to make; the report goes
// to standard output as JSON. The clients judge nothing: judge.py compares their reports.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const PATIENCE_MS = 30_000;
const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';

export const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));

/**
 * Watches what comes in over a transport: the SDKs run the handler of a notification later than that of the response
 * behind it, so the order on the wire is seen only here. The token of a request's progress is its id.
 */
export function watch(transport) {
    const seen = { protocol: undefined, progress: [], late: [], answered: new Set(), told: [], wake: () => {} };
    let deliver;
    Object.defineProperty(transport, 'onmessage', {
        get: () => deliver,
        set: handler => {
            deliver = (message, ...rest) => {
                seen.protocol ??= message.result?.protocolVersion;
                if (message.method === 'notifications/progress') {
                    const { progressToken, _meta, ...update } = message.params;
                    (seen.answered.has(progressToken) ? seen.late : seen.progress).push(update);
                } else if (message.method === undefined) {
                    seen.answered.add(message.id);
                } else if (message.id === undefined) {
                    seen.told.push(message);
                    seen.wake();
                }
                handler(message, ...rest);
            };
        }
    });
    return seen;
}

/** A complaint of the SDK that counts: not one about progress, which `watch` judges better. */
export const counts = message => !message.startsWith('Received a progress notification for an unknown token');

/** What a person would fill into a form; the same in every client. */
function filled(schema) {
    const value = field => {
        const choice = field.enum?.[0] ?? (field.oneOf ?? field.anyOf)?.[0].const;
        if (choice !== undefined) return choice;
        switch (field.type) {
            case 'boolean': return true;
            case 'integer': case 'number': return field.minimum ?? 7;
            case 'array': return [value(field.items)];
        }
        const texts = { email: 'ann@example.org', uri: 'https://example.org', date: '2026-01-02', 'date-time': '2026-01-02T03:04:05Z' };
        return texts[field.format] ?? 'Ann'.padEnd(field.minLength ?? 0, 'n');
    };
    return Object.fromEntries(Object.entries(schema?.properties ?? {}).map(([key, field]) => [key, value(field)]));
}

/** What the person's side answers, by method, and what it was asked, in order. */
export const asked = [];
export const answers = {
    'sampling/createMessage': () =>
        ({ role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'a-model', stopReason: 'endTurn' }),
    'elicitation/create': ({ mode, requestedSchema }) =>
        mode === 'url' ? { action: 'accept' } : { action: 'accept', content: filled(requestedSchema) },
    'roots/list': () => ({ roots: [{ uri: pathToFileURL(process.cwd()).href, name: 'work' }] })
};
export const answer = method => request => {
    asked.push(request.params?.mode === 'url' ? `${method} url` : method);
    return answers[method](request.params ?? {});
};

/**
 * `session` is the SDK made plain: protocol(), seen (of `watch`), list(kind, cursor), callTool(params, options), read,
 * prompt, complete, subscribe (undefined where the SDK cannot), modern, listen(filter) in the modern era, errors (what
 * the SDK complained of), close(). `own` are the steps that this client alone can make.
 */
export async function run(session, own = {}) {
    const steps = { ...STEPS, ...own };
    const report = { protocol: session.protocol(), steps: {}, errors: session.errors };
    for (const step of plan.steps) {
        Object.assign(session.seen, { progress: [], late: [], told: [] });
        asked.length = 0;
        const began = Date.now();
        try {
            report.steps[step.key] = await steps[step.do](session, step);
        } catch (error) {
            const hangs = Date.now() - began >= PATIENCE_MS;
            report.steps[step.key] = { failed: `${error.name}: ${error.message}`, code: error.code, hangs };
        }
        report.steps[step.key].asked = [...asked];
    }
    await session.close();
    console.log(JSON.stringify(report));
}

/** Waits until the server has told something that `wanted` takes, and returns what that gave. */
function told(session, what, wanted) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`was never told ${what}`)), PATIENCE_MS);
        let read = 0;
        const look = async () => {
            while (read < session.seen.told.length) {
                const found = await wanted(session.seen.told[read++]);
                if (found) {
                    clearTimeout(timer);
                    return resolve(found);
                }
            }
        };
        session.seen.wake = () => look().catch(reject);
        session.seen.wake();
    });
}

/** All pages of a list. */
async function list(session, kind) {
    const entries = [];
    let pages = 0;
    for (let cursor; ; ) {
        const page = await session.list(kind, cursor);
        entries.push(...page[kind]);
        pages += 1;
        if ((cursor = page.nextCursor) === undefined) {
            return { entries, pages };
        }
    }
}

const KEYS = { tools: 'name', prompts: 'name', resources: 'uri', resourceTemplates: 'uriTemplate' };
const OPTIONS = { timeout: PATIENCE_MS };

const STEPS = {
    list: (session, { kind }) => list(session, kind),

    async settle(session, { expect }) {
        // Servers that are slow to start come into the list later, and that is announced.
        const lists = [];
        for (;;) {
            const changed = told(session, `what is missing of ${expect}`, ({ method }) => method === 'notifications/tools/list_changed');
            changed.catch(() => {});
            const names = new Set((await list(session, 'tools')).entries.map(tool => tool.name));
            lists.push(names.size);
            if (expect.every(name => names.has(name))) {
                session.seen.wake = () => {};
                return { lists };
            }
            await changed;
            session.seen.told = [];
        }
    },

    async call(session, { name, arguments: args, progress }) {
        const options = progress ? { ...OPTIONS, onprogress: () => {} } : OPTIONS;
        const result = await session.callTool({ name, arguments: args }, options);
        return { result, progress: session.seen.progress, late: session.seen.late };
    },

    async cancel(session, { name, arguments: args }) {
        const abort = new AbortController();
        const options = { ...OPTIONS, signal: abort.signal, onprogress: () => abort.abort('enough') };
        try {
            const result = await session.callTool({ name, arguments: args }, options);
            return { failed: `answered all the same: ${JSON.stringify(result)}` };
        } catch (error) {
            return { ended: String(error.message ?? error), byUs: abort.signal.aborted };
        }
    },

    async changed(session, { name, arguments: args, expect, kind }) {
        await session.listen?.({ [`${kind}ListChanged`]: true });
        const changed = told(session, `of a change of ${kind} that brought ${expect}`, async ({ method }) => {
            // Another server's list may change meanwhile, so the first notification need not be the one waited for.
            if (method !== `notifications/${kind}/list_changed`) return undefined;
            return (await list(session, kind)).entries.some(entry => entry[KEYS[kind]] === expect);
        });
        changed.catch(() => {});
        await session.callTool({ name, arguments: args }, OPTIONS);
        await changed;
        return { brought: expect };
    },

    async updated(session, { name, uri }) {
        if (session.listen) {
            await session.listen({ resourceSubscriptions: [uri] });
        } else {
            await session.subscribe({ uri });
        }
        const updated = told(session, `of an update of ${uri}`, ({ method, params }) =>
            method === 'notifications/resources/updated' && params.uri === uri);
        updated.catch(() => {});
        await session.callTool({ name, arguments: {} }, OPTIONS);
        await updated;
        return { updated: uri };
    },

    async logging(session, { name }) {
        const params = { name, arguments: {} };
        if (session.modern) {
            params._meta = { [LOG_LEVEL]: 'info' };
        } else {
            await session.setLevel('info');
        }
        await session.callTool(params, OPTIONS);
        const messages = session.seen.told.filter(({ method }) => method === 'notifications/message');
        return { messages: messages.map(({ params }) => [params.level, params.data]) };
    },

    async links(session, { name, arguments: args }) {
        const { content } = await session.callTool({ name, arguments: args }, OPTIONS);
        const links = content.filter(({ type }) => type === 'resource_link');
        if (links.length === 0) {
            return { absent: 'no link that this version knows' };
        }
        return { read: await Promise.all(links.map(async ({ uri }) => (await session.read({ uri })).contents)) };
    },

    read: async (session, { uri }) => ({ read: await session.read({ uri }) }),

    prompt: async (session, { name, arguments: args }) => ({ prompt: await session.prompt({ name, arguments: args }) }),

    complete: async (session, { ref, argument }) => ({ completed: await session.complete({ ref, argument }) }),

    async unknown(session, { name }) {
        try {
            return { result: await session.callTool({ name, arguments: {} }, OPTIONS) };
        } catch (error) {
            return { code: error.code, message: error.message };
        }
    }
};

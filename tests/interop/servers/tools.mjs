// The tools of both witness servers: progress, a call that only a cancellation ends, and a list that changes.
import { appendFileSync } from 'node:fs';

const text = text => ({ content: [{ type: 'text', text }] });

/** `view` turns the SDK's handler context into { token, notify, signal }. */
export function registerTools(server, z, view) {
    server.registerTool(
        'count',
        { description: 'Counts to n, with a progress notification for each step', inputSchema: z.object({ n: z.number().int() }) },
        async ({ n }, context) => {
            const { token, notify } = view(context);
            for (let i = 1; token !== undefined && i <= n; i++) {
                await notify({
                    method: 'notifications/progress',
                    params: { progressToken: token, progress: i, total: n, message: `step ${i}` }
                });
            }
            return text(`counted to ${n}`);
        }
    );
    server.registerTool(
        'hold',
        {
            description: 'Reports progress once, then waits to be cancelled and writes that down in a file',
            inputSchema: z.object({ file: z.string() })
        },
        async ({ file }, context) => {
            const { token, notify, signal } = view(context);
            appendFileSync(file, 'held\n');
            const cancelled = new Promise(resolve => signal.addEventListener('abort', resolve));
            if (token !== undefined) {
                await notify({ method: 'notifications/progress', params: { progressToken: token, progress: 1 } });
            }
            await cancelled;
            appendFileSync(file, 'cancelled\n');
            return text('cancelled');
        }
    );
    server.registerTool(
        'grow',
        { description: 'Adds a tool to the list', inputSchema: z.object({ name: z.string() }) },
        async ({ name }) => {
            server.registerTool(name, { description: 'Was not there before' }, async () => text(`${name} answers`));
            return text(`added ${name}`);
        }
    );
}

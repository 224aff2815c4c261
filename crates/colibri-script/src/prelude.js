// The globals of a script. Runs before it; the three functions of the host are known to this file alone.
(send, print, known, own) => {
  "use strict";
  const { parse, stringify } = JSON;
  const waiting = new Map();

  class ToolError extends Error {
    constructor(server, tool, message, code, advice) {
      super(message);
      Object.assign(this, { server, tool, code, advice });
    }
  }
  ToolError.prototype.name = "ToolError";

  const texts = (content) => content.filter((block) => block?.type === "text").map((block) => block.text);

  // A tool's structured content, else its text, else its blocks; a failure is thrown.
  const unpack = (server, tool, reply) => {
    if (reply.error !== undefined) {
      const { message, data, code } = reply.error;
      throw new ToolError(server, tool, message, data?.code ?? code, data?.do);
    }
    const { isError, structuredContent, content = [], _meta } = reply.result;
    const words = texts(content);
    if (isError === true) {
      const error = _meta?.["org.colibri/error"];
      // Of ours, the text has the code before it and the advice after it.
      const text = words.join("\n") || "the tool reports a failure without a text";
      const message = error === undefined ? text : text.replace(`${error.code}: `, "").split("\nWhat to do: ")[0];
      throw new ToolError(server, tool, message, error?.code ?? "TOOL_ERROR", error?.do);
    }
    if (structuredContent !== undefined) return structuredContent;
    return words.length === content.length ? words.join("\n") : content;
  };

  const invoke = (server, tool, args = {}) => {
    if (typeof args !== "object" || args === null || Array.isArray(args)) {
      throw new TypeError(`tools.${server}.${tool} takes one object with its arguments, for example {path: "a.txt"}`);
    }
    return new Promise((resolve, reject) => {
      const id = send(server, tool, stringify(args));
      waiting.set(id, (reply) => {
        try {
          resolve(unpack(server, tool, reply));
        } catch (error) {
          reject(error);
        }
      });
    });
  };

  // Any name leads to a tool: the daemon says which there are. `then` does not, so that nothing here is a promise.
  const shown = (list) => ({
    ownKeys: () => list,
    getOwnPropertyDescriptor: (_, name) =>
      list.includes(name) ? { enumerable: true, configurable: true, value: undefined } : undefined,
    has: (_, name) => list.includes(name),
    set: () => false,
  });
  const server = (id) => {
    const split = id.indexOf("__");
    const call = split > 0 ? (args) => invoke(id.slice(0, split), id.slice(split + 2), args) : undefined;
    const list = Object.hasOwn(known, id) ? known[id] : [];
    const tool = (_, name) => {
      if (typeof name !== "string" || (name === "then" && !list.includes(name))) return undefined;
      return (args) => invoke(id, name, args);
    };
    return call ?? new Proxy({}, { ...shown(list), get: tool });
  };
  const servers = { ...shown(Object.keys(known)), get: (_, id) => (typeof id === "string" && id !== "then" ? server(id) : undefined) };

  const show = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    try {
      return stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  };
  const log = (...values) => print(values.map(show).join(" "));

  Object.assign(globalThis, {
    ToolError,
    tools: new Proxy({}, servers),
    find: async (query, limit = 10) => (await invoke(own, "find_tools", { query, limit })).tools,
    schema: async (name) => parse(await invoke(own, "tool_schema", { tool: name.replace(".", "__") })),
    results: Object.freeze({ read: (handle, piece = {}) => invoke(own, "read_result", { ...piece, handle }) }),
    console: Object.freeze({ log, info: log, warn: log, error: log, debug: log }),
  });

  return (id, reply) => {
    const settle = waiting.get(id);
    waiting.delete(id);
    settle?.(parse(reply));
  };
};

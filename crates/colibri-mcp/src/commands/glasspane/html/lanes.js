// Draws lanes, a lane for each instance of an agent and for each user's clients of one name; and the time line of a task.
const lanes = (() => {
  const { el, svg, table, at, name, none, whole, count, short, time, date, exact, when, axis, lens, keep } = kit;
  const SHOWN = 14;
  const ROWS = 25;
  const WIDTH = 1000;
  const OUTCOMES = ["ok", "failed", "refused"];
  const CHANGES = {
    intake: "was taken in", queued: "came into the queue", claimed: "was claimed", started: "was begun", done: "is done", failed: "failed", cancelled: "was cancelled",
  };

  // What is chosen, and the windows of time that are looked at.
  const state = { all: false, lane: null, task: null, rows: ROWS, tasks: ROWS };
  const view = lens("view", "of those who work", 200, () => keep(draw));
  const task_view = lens("task view", "of the task", 200, () => keep(tasks));
  let data = {};
  let list = [];
  let names = [];
  let extent = [0, 1];

  const read = (span) => {
    const [begin, ms, kind, outcome, server, tool, why, code, task, n] = span;
    const end = ms === null ? Math.max(begin, data.day.until) : begin + ms;
    return { begin, end, runs: ms === null, kind, outcome: OUTCOMES[outcome], server: names[server], tool: names[tool], why: names[why], code: names[code], task, n };
  };
  const take = (now) => {
    data = now;
    if (!data.day) return;
    names = data.day.names;
    const known = new Map((data.now ? data.now.agents : []).map((agent) => [agent.id, agent]));
    const { older_step } = data.day.lanes;
    list = data.day.lanes.list.map((lane) => {
      const { id, started, ended, tasks, last } = lane;
      const agent = known.get(id);
      const spans = lane.spans.map(read).sort((a, b) => a.begin - b.begin);
      // The trail does not say for which task a model was asked: the one that the instance had then.
      for (const span of spans) if (span.kind === "model") span.task = tasks.findLast(([, since]) => since <= span.begin)?.[0] ?? null;
      const live = agent ? agent.state : ended ? names[lane.state] : "";
      return {
        key: id || `${names[lane.person]} ${names[lane.agent]}`, id, tasks, spans, started, ended, last, step: older_step, cost: lane.cost,
        agent: names[lane.agent], person: names[lane.person], jail: lane.jail === null ? null : names[lane.jail],
        older: lane.older, state: ended ? `ended, ${live}` : live,
        attention: Boolean(agent && agent.attention), stalled: Boolean(agent && agent.stalled),
        reason: (agent && agent.reason) || names[lane.reason], task: (agent && agent.task) || (tasks.length ? tasks[tasks.length - 1][0] : null),
      };
    });
    const reaches = list.map(reach);
    const first = Math.min(...reaches.map(([first]) => first));
    const last = Math.max(...reaches.map(([, last]) => last));
    extent = Number.isFinite(first) ? [first, Math.max(first + 1000, last)] : [data.day.since, data.day.until];
    view.cover(...room(extent));
  };
  const room = ([from, to]) => [from - (to - from) * 0.01, to + (to - from) * 0.01];

  const reach = (lane) => [
    Math.min(lane.started ?? Infinity, ...lane.older.slice(0, 1).map(([begin]) => begin), ...lane.spans.slice(0, 1).map((span) => span.begin)),
    lane.spans.reduce((last, span) => Math.max(last, span.end), lane.last),
  ];

  // ---- money
  const prices = () => data.day.model_costs.prices;
  const tokens = (cost) => cost.input + cost.cached + cost.stored + cost.output;
  const money = (cost) => (cost.money ? `${cost.money} ${prices()[0]}` : "");
  const spent = (cost) => (cost ? el("span", { class: "state" }, `${short(tokens(cost))} tokens${cost.money ? `, ${money(cost)}` : ""}`) : "");
  const spelled = (cost) => (cost ? `${count(cost.requests, "model request")}: ${short(cost.input)} tokens in, ${short(cost.cached)} from the provider's cache, ${short(cost.stored)} into it, ${short(cost.output)} out${cost.money ? `; ${money(cost)}` : ""}. ` : "");

  // ---- spans
  const title = (id) => (data.now ? data.now.board : []).find((task) => task.id === id)?.title;
  const inside = (span) => span.end >= view.from && span.begin <= view.to;
  const said = (span) => [
    `${exact(span.begin)} · `, name(span.server), span.tool ? [" › ", name(span.tool)] : "", ` · ${span.runs ? "not ended yet" : time(span.end - span.begin)}`,
    span.outcome === "ok" ? "" : ` · ${span.outcome}: `, span.outcome === "ok" && span.why ? " · " : "", span.why ? name(span.why) : "",
    span.code ? [" ", el("code", {}, span.code)] : "", span.task === null ? "" : ` · task #${span.task}`,
  ];
  // A strip of spans, in the window or in other bounds.
  const strip = (spans, older, step, from, to) => {
    const x = (ms) => ((ms - from) / (to - from)) * WIDTH;
    const paths = new Map();
    const add = (key, d) => paths.set(key, (paths.get(key) ?? "") + d);
    const least = 1.6;
    const most = Math.max(1, ...older.map(([, calls]) => calls));
    for (const [begin, calls, bad] of older) {
      if (begin + step < from || begin > to) continue;
      const tall = 3 + 11 * Math.sqrt(calls / most);
      add(bad ? "older failed" : "older ok", `M${x(begin).toFixed(1)} ${15 - tall}h${Math.max(least, x(begin + step) - x(begin)).toFixed(1)}v${tall}h${-Math.max(least, x(begin + step) - x(begin)).toFixed(1)}z`);
    }
    for (const span of spans) {
      if (span.end < from || span.begin > to) continue;
      const [begin, end] = [Math.max(-10, x(span.begin)), Math.min(WIDTH + 10, x(span.end))];
      const [top, tall] = span.kind === "model" ? [18, 7] : [2, 13];
      const wide = Math.max(least, end - begin).toFixed(1);
      const kind = span.kind === "model" && span.outcome === "ok" ? "model" : span.outcome;
      add(span.runs ? `${kind} runs` : kind, `M${begin.toFixed(1)} ${top}h${wide}v${tall}h-${wide}z`);
    }
    return svg("svg", { class: "strip", viewBox: `0 0 ${WIDTH} 27`, preserveAspectRatio: "none", "aria-hidden": "true" }, [...paths].map(([key, d]) => svg("path", { class: `bar ${key}`, d })));
  };
  const under = (event, spans) => {
    const box = event.currentTarget.getBoundingClientRect();
    const ms = view.at(event, event.currentTarget, [0, box.width]);
    const near = ((view.to - view.from) / box.width) * 4;
    const model = (event.clientY - box.top) / box.height > 0.62;
    let best = null;
    for (const span of spans) {
      if (span.begin > ms + near || span.end < ms - near) continue;
      const far = Math.max(0, span.begin - ms, ms - span.end) + (model === (span.kind === "model") ? 0 : near);
      if (!best || far < best.far || (far === best.far && span.end - span.begin < best.span.end - best.span.begin)) best = { span, far };
    }
    return best?.span;
  };
  const rows = (spans) =>
    table(
      ["Time", "What", "How long", "End", "Task", "Record"],
      spans.map((span) =>
        el("tr", { class: span.outcome }, when(span.begin, true), el("td", {}, span.kind === "model" ? "model: " : "", name(span.server), span.tool ? [" › ", name(span.tool)] : ""),
          el("td", { class: "number" }, span.runs ? "runs" : time(span.end - span.begin)),
          el("td", {}, span.outcome === "ok" ? "" : [el("span", { class: "kind" }, span.outcome), ": "], span.why ? name(span.why) : "", span.code ? [" ", el("code", {}, span.code)] : ""),
          el("td", { class: "number" }, span.task === null ? "–" : `#${span.task}`), el("td", { class: "number soft" }, `#${whole.format(span.n)}`)),
      ),
      [2, 4, 5],
    );
  const more = (key, left, step, press) => (left > 0 ? el("button", { type: "button", class: "more", "data-key": key, onclick: press }, `Show ${whole.format(Math.min(left, step))} more of ${whole.format(left)}`) : "");

  // ---- lanes
  const draw = () => {
    const root = at("lanes");
    if (!data.day) return root.replaceChildren(none("Not known: the trail was not read."));
    if (!list.length) return root.replaceChildren(none("Nobody has worked in this time."));
    const told = el("p", { class: "said", role: "status" }, "Point at a span to read what it was; choose a lane to read them all. Drag to move, Ctrl and the wheel to zoom.");
    const shown = state.all ? list : list.slice(0, SHOWN);
    const lane = (one) => {
      const sign = one.attention ? el("span", { class: "bad" }, el("span", { "aria-hidden": "true" }, "! "), "") : "";
      const task = one.task === null ? "" : [" · ", name(`#${one.task}${title(one.task) ? ` ${title(one.task)}` : ""}`)];
      const label = el(
        "button",
        { type: "button", class: "lane-name", "data-key": `lane ${one.key}`, "aria-pressed": String(state.lane === one.key), onclick: () => ((state.lane = state.lane === one.key ? null : one.key), (state.rows = ROWS), keep(draw)) },
        el("span", { class: "who" }, sign, name(one.agent || one.person), one.id ? el("span", { class: "soft" }, ` ${one.id.slice(0, 8)}`) : ""),
        el("span", { class: one.attention ? "bad state" : "state" }, one.agent ? name(one.person) : "directly", one.state ? ` · ${one.state}` : "", one.stalled ? ", stalled" : "", task),
        spent(one.cost),
      );
      const plot = el("div", { class: "lane-plot" }, strip(one.spans, one.older, one.step, view.from, view.to));
      plot.addEventListener("pointermove", (event) => {
        const span = !view.dragged() && under(event, one.spans);
        if (span) told.replaceChildren(...said(span).flat(Infinity));
      });
      return el("div", { class: `lane${state.lane === one.key ? " open" : ""}` }, label, plot);
    };
    const frame = el("div", { class: "lane-axis" });
    const body = el("div", { class: "lane-list" }, shown.map(lane), frame);
    const keys = [["ok", "Call"], ["failed", "Failed"], ["refused", "Refused"], ["model", "Model request"], ["older", "Older calls, counted"]];
    const hidden = list.length - shown.length;
    const { forgotten } = data.day.lanes;
    const open = list.find((one) => one.key === state.lane);
    const spans = open ? open.spans.filter(inside).reverse() : [];
    root.replaceChildren(...[
      view.controls(...(open ? [["lane", "Fit the lane", () => view.look(...room(reach(open)))]] : [])), told, body,
      el("ul", { class: "keys" }, keys.map(([key, word]) => el("li", { class: key }, el("i", { "aria-hidden": "true" }), word))),
      hidden > 0 || state.all ? el("button", { type: "button", class: "more", "data-key": "lanes all", onclick: () => ((state.all = !state.all), keep(draw)) }, state.all ? `Show the first ${SHOWN}` : `Show ${count(hidden, "more lane")}`) : "",
      forgotten ? el("p", { class: "soft" }, `${count(forgotten, "lane")} that were quiet longest are left out.`) : "",
      open ? [
        el("h3", {}, "Calls of ", name(open.agent || "clients"), open.id ? ` ${open.id}` : "", " in the time shown"),
        open.reason || open.jail || open.cost ? el("p", { class: "soft" }, spelled(open.cost), open.jail ? ["In jail ", name(open.jail), ". "] : "", open.reason ? name(open.reason) : "") : "",
        spans.length ? rows(spans.slice(0, state.rows)) : none("None that is remembered one by one."),
        more("lane more", spans.length - state.rows, 200, () => ((state.rows += 200), keep(draw))),
      ] : "",
    ].flat());
    const width = Math.max(280, frame.clientWidth || root.clientWidth);
    const [parts, tall] = axis((ms) => ((ms - view.from) / (view.to - view.from)) * width, view.from, view.to, 0, width, 0);
    frame.replaceChildren(svg("svg", { class: "axis-plot", viewBox: `0 0 ${width} ${tall}`, width, height: tall, "aria-hidden": "true" }, parts));
  };

  // ---- tasks
  const tasks = () => {
    const root = at("tasks");
    const board = data.now ? data.now.board : [];
    const histories = new Map((data.day ? data.day.tasks : []).map((task) => [task.id, task.changes]));
    const all = new Map(board.map((task) => [task.id, task]));
    const costs = new Map(data.day ? data.day.model_costs.tasks : []);
    for (const [id, changes] of histories) {
      const last = changes[changes.length - 1];
      if (!all.has(id)) all.set(id, { id, title: "", status: names[last.to], updated: last.at, created: changes[0].at, why: names[last.reason], creator: "", priority: null });
    }
    const sorted = [...all.values()].sort((a, b) => b.id - a.id);
    if (!sorted.length) return root.replaceChildren(none("There is no task."));
    const hosts = sorted.some((task) => task.host) ? ["Host"] : [];
    const row = (task) =>
      el("tr", {},
        el("td", {}, el("button", { type: "button", class: "link", "data-key": `task ${task.id}`, "aria-pressed": String(state.task === task.id), onclick: () => ((state.task = state.task === task.id ? null : task.id), (task_view.fits = true), keep(tasks)) }, `#${task.id}`)),
        ...hosts.map(() => el("td", {}, name(task.host ?? "–"))),
        el("td", {}, name(task.title || "not told")),
        el("td", { class: task.status === "failed" ? "bad" : "" }, task.status, task.why ? [": ", name(task.why)] : ""),
        el("td", {}, name(task.creator)), el("td", { class: "number" }, task.priority ?? "–"), el("td", { class: "number" }, costs.has(task.id) ? short(tokens(costs.get(task.id))) : "–"),
        data.day?.model_costs.prices ? el("td", { class: "number" }, costs.get(task.id)?.money ?? "–") : "", when(task.created, true), when(task.updated, true));
    const left = sorted.length - state.tasks;
    const priced = data.day?.model_costs.prices ? [prices()[0]] : [];
    root.replaceChildren(
      table(["Task", ...hosts, "Title", "Status", "By", "Priority", "Tokens", ...priced, "Created", "Changed"], sorted.slice(0, state.tasks).map(row), [4, 5, ...priced.map(() => 6)].map((at) => at + hosts.length)),
      more("tasks more", left, 100, () => ((state.tasks += 100), keep(tasks))),
      ...(all.has(state.task) ? task(all.get(state.task), histories.get(state.task) ?? [], costs.get(state.task)) : []),
    );
  };
  const task = (task, changes, cost) => {
    const spans = list.flatMap((lane) => lane.spans.filter((span) => span.task === task.id).map((span) => ({ ...span, lane })));
    spans.sort((a, b) => a.begin - b.begin);
    const heading = el("h3", {}, `Time line of task #${task.id} `, name(task.title));
    if (!changes.length) return [heading, none("The trail has no change of it in this time.")];
    const begun = changes[0].at;
    const ended = ["done", "failed", "cancelled"].includes(names[changes[changes.length - 1].to]);
    const last = Math.max(begun + 1000, ...spans.map((span) => span.end), ended ? changes[changes.length - 1].at : data.day.until);
    task_view.cover(begun, last);
    const { from, to } = task_view;
    const x = (ms) => ((ms - from) / (to - from)) * WIDTH;
    const parts = changes.map((change, index) => {
      const end = index + 1 < changes.length ? changes[index + 1].at : ended ? change.at : last;
      const [left, right] = [Math.max(-10, x(change.at)), Math.min(WIDTH + 10, Math.max(x(end), x(change.at) + 2))];
      return right > left ? svg("rect", { class: `phase ${names[change.to]}`, x: left.toFixed(1), y: 2, width: (right - left).toFixed(1), height: 10 }) : "";
    });
    const who = (change) => {
      const lane = change.session === null ? null : list.find((lane) => lane.id === names[change.session]);
      if (change.session !== null) return [" by ", name(`${lane ? `${lane.agent} ` : ""}${names[change.session]}`)];
      return change.by === null ? "" : [" by ", name(names[change.by])];
    };
    const frame = el("div", { class: "lane-axis" });
    const item = (change) =>
      el("li", {}, el("span", { class: "when" }, `${date(change.at)} ${exact(change.at)} `), `It ${CHANGES[names[change.to]] ?? names[change.to]}`, who(change), names[change.reason] ? [": ", name(names[change.reason])] : ".");
    const width = Math.max(280, at("tasks").clientWidth - 2);
    const [ticks, tall] = axis((ms) => ((ms - from) / (to - from)) * width, from, to, 0, width, 0);
    frame.append(svg("svg", { class: "axis-plot", viewBox: `0 0 ${width} ${tall}`, width, height: tall, "aria-hidden": "true" }, ticks));
    return [el("div", { class: "task" }, heading, cost ? el("p", { class: "soft" }, spelled(cost)) : "", task_view.controls(),
      el("div", { class: "plot task-plot" }, svg("svg", { class: "strip", viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: "none", "aria-hidden": "true" }, parts), strip(spans, [], 1, from, to), frame),
      el("ul", { class: "keys" }, [...new Set(changes.map((change) => names[change.to]))].map((key) => el("li", { class: `phase-key ${key}` }, el("i", { "aria-hidden": "true" }), key))),
      el("ul", { class: "changes" }, changes.map(item)),
      el("h3", {}, `${count(spans.length, "call")} and model requests for it`),
      spans.length ? rows(spans.slice(-ROWS).reverse()) : none("None that is remembered one by one."))];
  };

  // Once, when there is a page to draw on.
  const watch = () => {
    const root = at("lanes");
    view.watch(root, ".lane-plot");
    task_view.watch(at("tasks"), ".task-plot");
    let width = 0;
    new ResizeObserver(() => {
      if (root.clientWidth !== width) draw();
      width = root.clientWidth;
    }).observe(root);
  };

  return { take, draw, tasks, watch, tokens };
})();

// Draws the page from the data in it. Text of others is set as text alone, and is escaped and bounded before it is here.
const page = (() => {
  const { fill, el, svg, table, at, name, none, whole, count, bytes, short, time, iso, clock, date, zone, moment, exact, when, axis, length, round, lens, keep } = kit;
  const { head: stays, record, present, numbers } = JSON.parse(document.getElementById("data").textContent);
  const data = { ...stays, ...record, ...present };
  let day = null;
  let names = [];
  const KINDS = [
    { key: "refused", word: "Refused", sign: "✕", cell: 4, say: "by a rule, a limit or a person" },
    { key: "failed", word: "Failed", sign: "▲", cell: 3, say: "at the server or the tool" },
    { key: "waited", word: "Waited", sign: "◷", cell: 0, say: "for a person's answer, or for another attempt" },
  ];
  const ROWS = 25;
  const NODES = 10;
  const HEIGHT = 210;
  const TOOLS = 15;
  const CODES = 12;

  // ---- the calls
  let servers = new Map();
  const place = (id) => {
    if (id === "colibri") return "the daemon";
    const server = servers.get(id);
    if (!data.now) return "not known";
    if (!server) return "no longer there";
    if (server.transport === "url") return "behind a URL";
    return server.transport === "jail" ? `jail ${server.jail ?? ""}` : "host, no jail";
  };
  const DIRECT = "directly";
  const COLUMNS = ["Callers", "Agents and clients", "Servers", "Where they run"];
  let paths = [];
  let totals = [];
  let bins = 0;
  const calls = (total) => total[2] + total[3] + total[4];
  // What follows from the data, whenever there is news.
  const derive = () => {
    day = data.day;
    names = day ? day.names : [];
    servers = new Map((data.now ? data.now.servers : []).map((server) => [server.id, server]));
    paths = (day ? day.paths : []).map((way) => {
      const server = names[way.server];
      return [names[way.caller], way.agent === null ? DIRECT : names[way.agent], server, place(server)];
    });
    totals = paths.map(() => [0, 0, 0, 0, 0]);
    for (const cell of day ? day.cells : []) for (const at of [2, 3, 4]) totals[cell[0]][at] += cell[at];
    bins = day ? 1 + day.cells.reduce((last, cell) => Math.max(last, cell[1]), 0) : 0;
    if (bins) calls_view.cover(day.first, day.first + bins * day.step);
    lanes.take(data);
  };

  const calls_view = lens("calls", "of calls", 4000, () => timeline.draw());
  const state = { chosen: null, bin: null, models: 0, kinds: new Set(KINDS.map((kind) => kind.key)), rows: ROWS, measure: 0, all: false };
  const kept = (path) => !state.chosen || state.chosen.names.has(paths[path][state.chosen.column]);
  const is_chosen = (node) => state.chosen !== null && state.chosen.column === node.column && state.chosen.label === node.label;
  const waited = () => (state.chosen ? day.marks.filter((mark) => mark.kind === "waited" && kept(mark.path)).length : day.marked[2]);
  // By section, so that one that is built again has its drawer replaced.
  const drawers = new Map();
  const redraw = () => {
    for (const draw of drawers.values()) draw();
  };

  // ---- the head
  const verdict = () => {
    const trail = data.verdict;
    if (!trail) return ["odd", "?", "The trail was not read"];
    if (!trail.sound) return ["bad", "✕", `The trail does not verify: ${count(trail.fault_count, "fault")}`];
    if (!trail.vouched_by.length) return ["odd", "?", "The trail is sound, but nobody vouches for it"];
    return ["good", "✓", "The trail verifies"];
  };
  const badge = (tag, attributes) => {
    const [mood, sign, text] = verdict();
    return el(tag, { class: `badge ${mood}`, ...attributes }, el("span", { class: "sign", "aria-hidden": "true" }, sign), text);
  };

  const head = () => {
    at("host").textContent = `on ${data.host}`;
    at("when").textContent = day
      ? `${moment(day.since)} to ${moment(day.until)}`
      : `as of ${moment(data.made)}`;
    at("verdict").replaceChildren(badge("a", { href: "#h-trail" }));
    const notes = [];
    if (data.trail_trouble) notes.push(["The trail could not be read, so no call is shown", data.trail_trouble]);
    if (data.now_trouble) notes.push(["The daemon was not reached, so jails and what happens now are not known", data.now_trouble]);
    if (day && day.together) notes.push(["There were too many", "callers, servers or tools beyond a bound are counted together, as “all others”"]);
    if (day && day.forgotten) notes.push(["There were too many at a time", `of ${count(day.forgotten, "call")} or questions to people the beginning was forgotten before the end`]);
    at("notes").replaceChildren(...notes.map(([what, why]) => el("p", { class: "note" }, el("strong", {}, `${what}: `), why)));
  };

  const sums = () => {
    const sum = [0, 0, 0, 0, 0];
    const seen = [new Set(), new Set()];
    totals.forEach((total, path) => {
      if (!kept(path)) return;
      for (const at of [2, 3, 4]) sum[at] += total[at];
      if (calls(total)) [0, 2].forEach((column, at) => seen[at].add(paths[path][column]));
    });
    const waits = waited();
    const tools = day.tools.filter((tool) => kept(tool.path));
    const all = calls(sum);
    const ms = tools.reduce((sum, tool) => sum + tool.ms, 0);
    const rows = [
      ["Calls", whole.format(all), ""],
      ["Went well", all ? `${Math.floor((sum[2] / all) * 1000) / 10} %` : "–", ""],
      ["Refused", whole.format(sum[4]), sum[4] ? "refused" : ""],
      ["Failed", whole.format(sum[3]), sum[3] ? "failed" : ""],
      ["Waited", whole.format(waits), waits ? "waited" : ""],
      ["Mean time", all ? time(ms / all) : "–", ""],
      ["Answers", bytes(tools.reduce((sum, tool) => sum + tool.answered, 0)), ""],
      ["Callers", whole.format(seen[0].size), ""],
      ["Servers", whole.format(seen[1].size), ""],
    ];
    at("sums").replaceChildren(
      ...rows.map(([what, value, mood]) => el("div", { class: mood }, el("dt", {}, what), el("dd", {}, value))),
    );
  };

  const chosen = () => {
    const box = at("chosen");
    box.hidden = !state.chosen;
    if (!state.chosen) return;
    const clear = el("button", { type: "button", "data-key": "all", onclick: () => choose(null) }, "Show all (Esc)");
    box.replaceChildren(el("span", {}, "Only ", name(state.chosen.label), ` (${COLUMNS[state.chosen.column].toLowerCase()})`), clear);
  };
  const choose = (what) => {
    state.chosen = what;
    state.rows = ROWS;
    redraw();
  };

  // ---- callers, agents, servers, places
  const ways = () => {
    const root = at("ways");
    at("ways-hint").hidden = !paths.some((_, path) => calls(totals[path]));
    if (at("ways-hint").hidden) {
      drawers.delete("ways");
      return root.replaceChildren(none(day ? "No call in this time." : "Not known: the trail was not read."));
    }
    const columns = COLUMNS.map((_, column) => {
      const sums = new Map();
      paths.forEach((path, at) => {
        const sum = sums.get(path[column]) ?? [0, 0];
        sums.set(path[column], [sum[0] + calls(totals[at]), sum[1] + totals[at][3] + totals[at][4]]);
      });
      const sorted = [...sums].filter(([, sum]) => sum[0]).sort((a, b) => b[1][0] - a[1][0]);
      const nodes = sorted.slice(0, NODES).map(([label, [calls, bad]]) => ({ label, calls, bad, names: new Set([label]), column }));
      const rest = sorted.slice(NODES);
      if (rest.length) {
        const sum = (at) => rest.reduce((sum, [, sums]) => sum + sums[at], 0);
        nodes.push({ label: `${rest.length} more`, calls: sum(0), bad: sum(1), names: new Set(rest.map(([label]) => label)), column });
      }
      return nodes;
    });
    const all = totals.reduce((sum, total) => sum + calls(total), 0);
    const button = (node) => {
      const press = () => choose(node.button.getAttribute("aria-pressed") === "true" ? null : node);
      const bad = node.bad ? el("span", { class: "bad" }, ` · ${short(node.bad)} not well`) : null;
      const soft = node.column === 1 && node.label === DIRECT ? " direct" : "";
      node.button = el(
        "button",
        { type: "button", class: `node c${node.column}${soft}`, "data-key": `${node.column} ${node.label}`, "aria-pressed": "false", onclick: press },
        name(node.label),
        el("span", { class: "calls" }, count(node.calls, "call"), bad),
      );
      node.button.style.minHeight = `${Math.max(44, (node.calls / all) * HEIGHT + 8)}px`;
      return node.button;
    };
    const links = svg("svg", { class: "links", "aria-hidden": "true" });
    root.replaceChildren(
      el(
        "div",
        { class: "ways" },
        links,
        columns.map((nodes, at) => el("div", { class: "column" }, el("h3", {}, COLUMNS[at]), nodes.map(button))),
      ),
    );
    // The bands between two columns, of the calls that are kept, or of all.
    const bands = (column, only) => {
      const sums = new Map();
      paths.forEach((path, at) => {
        const number = only && !kept(at) ? 0 : calls(totals[at]);
        if (!number) return;
        const ends = [column, column + 1].map((column) => columns[column].findIndex((node) => node.names.has(path[column])));
        const key = ends.join(" ");
        sums.set(key, { ends, number: (sums.get(key)?.number ?? 0) + number });
      });
      return [...sums.values()];
    };
    const draw = () => {
      for (const node of columns.flat()) {
        const is = (path) => node.names.has(path[node.column]);
        const lit = !state.chosen || paths.some((path, at) => is(path) && kept(at) && calls(totals[at]));
        node.button.classList.toggle("off", !lit);
        node.button.setAttribute("aria-pressed", String(is_chosen(node)));
      }
      const frame = links.getBoundingClientRect();
      const drawn = [];
      // One scale for all: so many pixels a call.
      const tall = HEIGHT / all;
      for (let column = 0; column < 3 && frame.width; column += 1) {
        const boxes = [column, column + 1].map((column) => columns[column].map((node) => node.button.getBoundingClientRect()));
        const used = boxes.map((boxes) => boxes.map(() => 0));
        const sums = [column, column + 1].map((column) => columns[column].map((node) => node.calls));
        const lit = new Map(bands(column, true).map((band) => [band.ends.join(" "), band.number]));
        const sorted = bands(column, false).sort((a, b) => a.ends[0] - b.ends[0] || a.ends[1] - b.ends[1]);
        for (const { ends, number } of sorted) {
          const sides = ends.map((end, side) => {
            const box = boxes[side][end];
            const y = box.top - frame.top + (box.height - sums[side][end] * tall) / 2 + used[side][end];
            used[side][end] += number * tall;
            return { y, width: Math.max(1, number * tall) };
          });
          const [x0, x1] = [boxes[0][ends[0]].right - frame.left, boxes[1][ends[1]].left - frame.left];
          const middle = (x0 + x1) / 2;
          const [a, b] = sides;
          const share = (lit.get(ends.join(" ")) ?? 0) / number;
          const band = (part) =>
            `M${x0} ${a.y}C${middle} ${a.y} ${middle} ${b.y} ${x1} ${b.y}v${b.width * part}` +
            `C${middle} ${b.y + b.width * part} ${middle} ${a.y + a.width * part} ${x0} ${a.y + a.width * part}z`;
          drawn.push(svg("path", { d: band(1), class: "band" }));
          if (state.chosen && share) drawn.push(svg("path", { d: band(share), class: "band lit" }));
        }
      }
      links.replaceChildren(...drawn);
    };
    drawers.set("ways", draw);
  };

  // ---- the time line
  const from = (bin) => day.first + bin * day.step;
  const span = (bin) => `${date(from(bin))}, ${clock(from(bin), day.step < 60_000)}–${clock(from(bin + 1), day.step < 60_000)} ${zone(from(bin))}`;

  const timeline = () => {
    const root = at("time");
    if (!day || !day.cells.length) {
      drawers.delete("time");
      return root.replaceChildren(none(day ? "No call in this time." : "Not known: the trail was not read."));
    }
    state.bin = state.bin === null || state.bin >= bins ? null : state.bin;
    const said = el("p", { class: "said", role: "status" });
    const frame = el("div", { class: "plot" });
    const buttons = el("div");
    const keys = KINDS.map((kind) => el("li", { class: kind.key }, el("i", { "aria-hidden": "true" }), `${kind.word}: ${kind.say}`));
    root.replaceChildren(buttons, said, frame, el("ul", { class: "keys" }, el("li", { class: "ok" }, el("i"), "Went well"), keys));
    let sums = [];
    let waits = [];
    let geometry = null;
    const tell = (bin) => {
      if (bin === null) {
        said.replaceChildren(`Each bar is ${day.step === 1000 || length(day.step).startsWith("hour") ? "one" : "a"} ${length(day.step)}`.replace(/ (an?|one) (\d)/, " $2"), ". Point at one, or use the arrow keys; a click or Enter lists what was wrong in it. Drag to move, Ctrl and the wheel to zoom.");
        return;
      }
      const [, , ok, failed, refused] = sums[bin];
      const late = waits.filter((mark) => mark.at < from(bin + 1) && mark.at + mark.ms >= from(bin)).length;
      const parts = [[failed, "failed"], [refused, "refused"], [late, "waited"]].filter(([number]) => number);
      const bad = parts.map(([number, word]) => `, ${whole.format(number)} ${word}`).join("");
      said.replaceChildren(el("strong", {}, `${span(bin)}: `), `${count(ok + failed + refused, "call")}${bad}`);
    };
    const draw = () => {
      const width = Math.max(280, frame.clientWidth);
      const [left, right, top, height, lane] = [70, 8, 8, width < 500 ? 150 : 200, 20];
      sums = Array.from({ length: bins }, (_, bin) => [0, bin, 0, 0, 0]);
      for (const cell of day.cells) {
        if (!kept(cell[0])) continue;
        const sum = sums[Math.min(cell[1], bins - 1)];
        for (const at of [2, 3, 4]) sum[at] += cell[at];
      }
      waits = day.marks.filter((mark) => mark.kind === "waited" && kept(mark.path));
      const seen = sums.filter((_, bin) => from(bin + 1) > calls_view.from && from(bin) < calls_view.to);
      const [most, steps] = round(Math.max(1, ...seen.map(calls)));
      const along = (ms) => left + ((ms - calls_view.from) / (calls_view.to - calls_view.from)) * (width - left - right);
      const x = (ms) => Math.max(left, Math.min(width - right, along(ms)));
      const y = (number) => top + height - (number / most) * height;
      const bar = ((width - left - right) * day.step) / (calls_view.to - calls_view.from);
      const thick = (bin, least) => Math.max(least, x(from(bin + 1)) - x(from(bin)) - (bar > 3 ? 1 : 0));
      const parts = [];
      for (let step = 0; step <= steps; step += 1) {
        const number = (most / steps) * step;
        parts.push(svg("line", { x1: left, x2: width - right, y1: y(number), y2: y(number), class: step ? "grid" : "axis" }));
        parts.push(svg("text", { x: left - 8, y: y(number) + 4, class: "tick end" }, short(number)));
      }
      const stack = [["ok", 2], ["failed", 3], ["refused", 4]];
      for (const [mood, cell] of stack) {
        let d = "";
        for (const sum of seen) {
          if (!sum[cell]) continue;
          const below = stack.slice(0, cell - 2).reduce((below, [, at]) => below + sum[at], 0);
          const wide = thick(sum[1], 0.8);
          d += `M${x(from(sum[1]))} ${y(below)}h${wide}V${y(below + sum[cell])}h${-wide}z`;
        }
        if (d) parts.push(svg("path", { d, class: `bar ${mood}` }));
      }
      let bottom = top + height + 10;
      for (const kind of KINDS) {
        const middle = bottom + lane / 2;
        let d = "";
        let number = 0;
        if (kind.cell) {
          const peak = Math.max(1, ...seen.map((sum) => sum[kind.cell]));
          number = sums.reduce((all, sum) => all + sum[kind.cell], 0);
          for (const sum of seen) {
            if (!sum[kind.cell]) continue;
            const tall = 4 + (lane - 8) * Math.sqrt(sum[kind.cell] / peak);
            const wide = thick(sum[1], 2);
            d += `M${x(from(sum[1]))} ${middle - tall / 2}h${wide}v${tall}h${-wide}z`;
          }
        } else {
          number = waited();
          for (const mark of waits) {
            if (mark.at > calls_view.to || mark.at + mark.ms < calls_view.from) continue;
            const begin = x(mark.at);
            d += `M${begin} ${middle - 3}h${Math.max(2, x(mark.at + mark.ms) - begin)}v6H${begin}z`;
          }
        }
        parts.push(svg("line", { x1: left, x2: width - right, y1: middle, y2: middle, class: "grid" }));
        parts.push(svg("text", { x: left - 8, y: middle + 4, class: `tick end ${number ? kind.key : ""}` }, kind.key));
        if (d) parts.push(svg("path", { d, class: `bar ${kind.key}` }));
        bottom += lane;
      }
      const [ticks, tall] = axis(along, calls_view.from, calls_view.to, left, width - right, bottom);
      parts.push(...ticks);
      parts.push(svg("text", { x: 11, y: top + height / 2, class: "tick middle", transform: `rotate(-90 11 ${top + height / 2})` }, `calls each ${length(day.step)}`));
      const cursor = svg("rect", { class: "cursor", y: top, height: bottom - top, width: 2, visibility: "hidden" });
      parts.push(cursor);
      geometry = { left, right, width, x };
      buttons.replaceChildren(calls_view.controls());
      const plot = frame.firstElementChild ?? focusable();
      fill(plot, { viewBox: `0 0 ${width} ${bottom + tall}`, width, height: bottom + tall }, []);
      plot.replaceChildren(...parts);
      point(state.bin);
    };
    const point = (bin) => {
      const cursor = frame.querySelector(".cursor");
      const [begin, end] = bin === null ? [0, 0] : [geometry.x(from(bin)), geometry.x(from(bin + 1))];
      fill(cursor, { visibility: end > begin ? "visible" : "hidden", x: begin, width: Math.max(2, end - begin) }, []);
      const plot = frame.firstElementChild;
      tell(bin);
      fill(plot, { "aria-valuenow": bin ?? 0, "aria-valuetext": bin === null ? "none chosen" : said.textContent }, []);
      plot.classList.toggle("held", state.bin !== null && state.bin === bin);
    };
    let pointed = null;
    const hold = (bin) => {
      state.bin = state.bin === bin ? null : bin;
      pointed = state.bin;
      point(state.bin);
      state.rows = ROWS;
      marks.draw();
    };
    const under = (event) => {
      const bin = Math.floor((calls_view.at(event, frame.firstElementChild, timeline.bounds()) - day.first) / day.step);
      return bin >= 0 && bin < bins ? bin : null;
    };
    const press = (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 12, PageDown: -12, Home: -bins, End: bins };
      if (event.key === "Enter" || event.key === " ") {
        if (pointed !== null) hold(pointed);
      } else if (event.key in steps) {
        pointed = Math.max(0, Math.min(bins - 1, (pointed ?? (steps[event.key] > 0 ? -1 : bins)) + steps[event.key]));
        const [begin, end, wide] = [from(pointed), from(pointed + 1), calls_view.to - calls_view.from];
        if (begin < calls_view.from) calls_view.look(begin, begin + wide);
        else if (end > calls_view.to) calls_view.look(end - wide, end);
        point(pointed);
      } else return;
      event.preventDefault();
    };
    const focusable = () => {
      const plot = svg("svg", {
        class: "timeline", "data-key": "timeline", tabindex: "0", role: "slider", "aria-label": "Calls over time", "aria-valuemin": 0, "aria-valuemax": bins - 1,
        onkeydown: press,
        onpointermove: (event) => ((pointed = under(event)), point(pointed)),
        onpointerleave: () => ((pointed = state.bin), point(state.bin)),
        onclick: (event) => !calls_view.dragged() && under(event) !== null && hold(under(event)),
      });
      frame.append(plot);
      return plot;
    };
    timeline.draw = () => keep(draw);
    drawers.set("time", timeline.draw);
    timeline.bounds = () => {
      const scale = frame.firstElementChild.getBoundingClientRect().width / geometry.width;
      return [geometry.left * scale, (geometry.width - geometry.left - geometry.right) * scale];
    };
    timeline.clear = () => state.bin !== null && hold(state.bin);
  };

  // ---- what was refused, failed or waited
  const marks = () => {
    const root = at("marks");
    if (!day) {
      drawers.delete("marks");
      return root.replaceChildren(none("Not known: the trail was not read."));
    }
    const numbers = KINDS.map(() => el("span", {}));
    const toggle = (kind, index) => {
      const box = el("input", { type: "checkbox", "data-key": `kind ${kind.key}`, checked: state.kinds.has(kind.key), onchange: () => {
        if (box.checked) state.kinds.add(kind.key);
        else state.kinds.delete(kind.key);
        state.rows = ROWS;
        marks.draw();
      } });
      return el("label", { class: `pick ${kind.key}` }, box, el("span", { "aria-hidden": "true" }, kind.sign), ` ${kind.word} `, numbers[index]);
    };
    const bounds = KINDS.filter((_, index) => day.marked[index] > day.most_marks);
    const bound = bounds.length
      ? el("p", { class: "soft" }, `Listed are the newest ${whole.format(day.most_marks)} of each kind; there were more that ${bounds.map((kind) => kind.word.toLowerCase()).join(", ")}. The counts above, and the time line but for waits, are of all.`)
      : null;
    const codes = day.codes.length
      ? el("ul", { class: "codes" }, day.codes.slice(0, CODES).map(([code, number]) => el("li", {}, name(code), ` ${whole.format(number)}`)), day.codes.length > CODES ? el("li", {}, `${day.codes.length - CODES} more reasons`) : "")
      : null;
    const list = el("div", { class: "plain" });
    root.replaceChildren(el("div", { class: "picks" }, KINDS.map(toggle)), codes ?? "", bound ?? "", list);
    const tally = () => {
      const cells = (cell) => totals.reduce((sum, total, path) => sum + (kept(path) ? total[cell] : 0), 0);
      KINDS.forEach((kind, index) => (numbers[index].textContent = whole.format(kind.cell ? cells(kind.cell) : waited())));
      if (codes) codes.hidden = Boolean(state.chosen);
    };
    marks.draw = () => {
      tally();
      const inside = (mark) => state.bin === null || (mark.at < from(state.bin + 1) && mark.at + mark.ms >= from(state.bin));
      const found = day.marks.filter((mark) => state.kinds.has(mark.kind) && kept(mark.path) && inside(mark)).reverse();
      const where = state.bin === null ? null : el("p", { class: "chosen" }, el("span", {}, `Only ${span(state.bin)}`), el("button", { type: "button", "data-key": "bin", onclick: () => timeline.clear() }, "Show all (Esc)"));
      if (!found.length) {
        list.replaceChildren(where ?? "", none("Nothing was refused, failed or waited here."));
        return;
      }
      const row = (mark) => {
        const kind = KINDS.find((kind) => kind.key === mark.kind);
        const [caller, agent, server] = paths[mark.path];
        const who = agent === DIRECT ? [name(caller)] : [name(caller), " › ", name(agent)];
        const tool = names[mark.tool];
        const dated = day.until - day.since > 43_200_000;
        return el(
          "tr",
          { class: mark.kind },
          when(mark.at, dated),
          el("td", { class: "kind" }, el("span", { "aria-hidden": "true" }, `${kind.sign} `), mark.kind),
          el("td", {}, who),
          el("td", {}, name(server), tool ? [" › ", name(tool)] : ""),
          el("td", {}, name(names[mark.why]), names[mark.code] ? [" ", el("code", {}, names[mark.code])] : ""),
          el("td", { class: "number" }, mark.ms ? time(mark.ms) : "–"),
          el("td", { class: "number soft" }, mark.n ? `#${mark.n}` : ""),
        );
      };
      const headings = ["Time", "What", "Who", "Server › tool", "Why", "How long", "Record"];
      const more = found.length - state.rows;
      list.replaceChildren(
        where ?? "",
        table(headings, found.slice(0, state.rows).map(row), [5, 6]),
        more > 0 ? el("button", { type: "button", class: "more", "data-key": "marks", onclick: () => ((state.rows += 200), keep(marks.draw)) }, `Show ${whole.format(Math.min(more, 200))} more of ${whole.format(more)}`) : "",
      );
    };
    drawers.set("marks", marks.draw);
  };

  // ---- cost
  const MEASURES = [
    { word: "Answers", say: "Bytes of answers", of: (tool) => tool.answered, show: bytes },
    { word: "Arguments", say: "Bytes of arguments", of: (tool) => tool.asked, show: bytes },
    { word: "Calls", say: "Calls", of: (tool) => tool.calls, show: short },
    { word: "Time", say: "Time that calls took together, waits included", of: (tool) => tool.ms, show: time },
  ];
  const { ledger } = data;
  if (ledger) {
    const whose = `${ledger.everybody ? "" : ", yours alone"}, since ${ledger.since}, as the ledger has them`;
    const listing = { word: "Listing", say: `Bytes of definitions in the lists that were answered${whose}`, of: (tool) => tool.listed, show: bytes, ledger, times: (tool) => tool.lists, count: "Lists" };
    const tokens = { word: "Model", say: `Tokens that models read and wrote, as they told${whose}`, of: (tool) => tool.tokens, show: short, ledger };
    MEASURES.push(...[listing, tokens].filter((measure) => ledger.rows.some((row) => measure.of(row))));
  }
  const cost = () => {
    const root = at("cost");
    if (!day || !day.tools.length) {
      drawers.delete("cost");
      return root.replaceChildren(none(day ? "No call in this time, so no cost." : "Not known: the trail was not read."));
    }
    const list = el("div");
    const pick = (measure, index) =>
      el("label", { class: "pick" }, el("input", { type: "radio", name: "measure", "data-key": `measure ${index}`, checked: index === state.measure, onchange: () => ((state.measure = index), draw()) }), measure.word);
    root.replaceChildren(el("div", { class: "picks", role: "radiogroup", "aria-label": "Measure" }, MEASURES.map(pick)), list);
    const draw = () => {
      const measure = MEASURES[state.measure];
      const sums = new Map();
      // The ledger knows servers and tools; who called is the trail's.
      const server = state.chosen?.column === 2 ? state.chosen.names : null;
      const rows = measure.ledger
        ? ledger.rows.filter((row) => measure.of(row) && (!server || server.has(row.server)))
        : day.tools.filter((tool) => kept(tool.path)).map((tool) => ({ ...tool, server: paths[tool.path][2], tool: names[tool.name] }));
      for (const row of rows) {
        const key = `${row.server}\n${row.tool}`;
        const sum = sums.get(key) ?? { server: row.server, tool: row.tool, value: 0, calls: 0, unused: measure.count && !row.calls };
        sum.value += measure.of(row);
        sum.calls += measure.times ? measure.times(row) : row.calls;
        sums.set(key, sum);
      }
      const sorted = [...sums.values()].sort((a, b) => b.value - a.value || b.calls - a.calls);
      if (!sorted.length) return list.replaceChildren(none("No call here, so no cost."));
      const total = sorted.reduce((sum, one) => sum + one.value, 0);
      const most = Math.max(1, sorted[0].value);
      const shown = state.all ? sorted : sorted.slice(0, TOOLS);
      const row = (one) => {
        const bar = el("span", { class: "fill" });
        bar.style.width = `${(one.value / most) * 100}%`;
        const share = total ? Math.round((one.value / total) * 1000) / 10 : 0;
        return el(
          "tr",
          {},
          el("th", { scope: "row" }, name(one.server), " › ", name(one.tool), one.unused ? el("span", { class: "soft" }, " never called") : ""),
          el("td", { class: "track" }, bar),
          el("td", { class: "number" }, measure.show(one.value)),
          el("td", { class: "number soft" }, `${share} %`),
          el("td", { class: "number soft" }, whole.format(one.calls)),
          el("td", { class: "number soft" }, measure.show(one.value / Math.max(1, one.calls))),
        );
      };
      const ticks = el("div", { class: "scale" }, [0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, measure.show(Math.round(most * part)))));
      const headings = [el("th", { scope: "col" }, "Server › tool"), el("th", { scope: "col", class: "track" }, ticks), ...[measure.word, "Share", measure.count ?? "Calls", "Each"].map((word) => el("th", { scope: "col", class: "number" }, word))];
      const beyond = measure.ledger && ledger.left_out ? `${count(ledger.left_out, "row")} that cost less are left out. ` : "";
      const unwritten = measure.ledger && ledger.unwritten ? ["The newest counts are not in it: ", name(ledger.unwritten)] : "";
      const rest = sorted.slice(shown.length).reduce((sum, one) => sum + one.value, 0);
      const more = sorted.length - TOOLS;
      list.replaceChildren(
        el("p", { class: "soft" }, `${measure.say}, by tool: ${measure.show(total)} in all${rest ? `, ${measure.show(rest)} of it by tools not listed` : ""}. `, measure.show === bytes ? `To a model some ${short(Math.round(total / 4))} tokens, estimated at four bytes each. ` : "", beyond, unwritten),
        el("div", { class: "scroll" }, el("table", { class: "bars" }, el("thead", {}, el("tr", {}, headings)), el("tbody", {}, shown.map(row)))),
        more > 0 ? el("button", { type: "button", class: "more", "data-key": "cost", onclick: () => ((state.all = !state.all), keep(draw)) }, state.all ? `Show the first ${TOOLS}` : `Show ${whole.format(more)} more`) : "",
      );
    };
    drawers.set("cost", draw);
  };

  // ---- what models cost
  const BY = [
    { word: "Agent", of: (costs) => costs.agents.map(([who, cost]) => [name(names[who]), cost]) },
    { word: "Client", of: (costs) => costs.clients.map(([who, cost]) => [names[who] ? name(names[who]) : "no name given", cost]) },
    { word: "Task", of: (costs) => costs.tasks.map(([id, cost]) => [`#${id}`, cost]) },
    { word: "Model", of: (costs) => costs.models.map(([who, cost]) => [names[who] ? name(names[who]) : "not known by name", cost]) },
  ];
  const models = () => {
    const root = at("models");
    if (!day) return root.replaceChildren(none("Not known: the trail was not read."));
    const costs = day.model_costs;
    if (!costs.all.requests) return root.replaceChildren(none("No model was asked in this time."));
    const { prices, all } = costs;
    const list = el("div");
    const draw = () => {
      const cells = (cost) => [cost.requests, cost.input, cost.cached, cost.stored, cost.output].map((number) => el("td", { class: "number", title: whole.format(number) }, short(number)));
      const row = ([who, cost]) => el("tr", {}, el("td", {}, who), cells(cost), prices ? el("td", { class: "number" }, cost.money ?? "–") : "");
      const rows = BY[state.models].of(costs);
      const headings = [BY[state.models].word, "Requests", "Input", "Cached", "Into the cache", "Output", ...(prices ? [prices[0]] : [])];
      list.replaceChildren(rows.length ? table(headings, rows.map(row), [1, 2, 3, 4, 5, 6]) : none("No model request was for one."));
    };
    const pick = (by, index) =>
      el("label", { class: "pick" }, el("input", { type: "radio", name: "models", "data-key": `models ${index}`, checked: index === state.models, onchange: () => ((state.models = index), draw()) }), by.word);
    const sum = `${count(all.requests, "request")}, ${short(lanes.tokens(all))} tokens${all.money ? `, ${all.money} ${prices[0]}` : ""} in all, by the trail. Cached tokens are not in the input. `;
    const money = prices ? `Prices of ${prices[1]}. ${all.unpriced ? `A plus sign: besides there are tokens without a price, ${short(all.unpriced)} in all. ` : ""}` : data.prices_trouble ? ["Without money: ", name(data.prices_trouble)] : "Without money: there is no prices.json. ";
    root.replaceChildren(el("p", { class: "soft" }, sum, money), el("div", { class: "picks", role: "radiogroup", "aria-label": "By" }, BY.map(pick)), list);
    draw();
  };

  // ---- the calls that wait for a person
  // What was told of an answer stays when the page is drawn again.
  const told = new Map();
  const waiting = () => {
    const root = at("waiting");
    const calls = data.now ? data.now.waiting : [];
    root.closest("section").hidden = !calls.length;
    document.title = `${calls.length ? `(${calls.length}) ` : ""}Colibri on ${data.host}`;
    const { live } = data;
    const answer = (one, approve) => {
      const tell = (text, asks) => {
        told.set(one.approval, { text, asks });
        keep(waiting);
      };
      tell("Asking the daemon…", true);
      page.answer(one.approval, approve).then((said) => tell(said, true)).catch((error) => tell(`Not done: ${error.message}`, false));
    };
    const card = (one) => {
      const { no_approval } = live ?? {};
      const why = !live ? ["To answer: ", el("code", {}, `colibri-mcp approvals approve ${one.approval}`)] : one.cut ? "Its arguments are too long for this page: read them with colibri-mcp approvals." : no_approval ? `It can be denied here, and not approved: ${no_approval}.` : "";
      const { text, asks } = told.get(one.approval) ?? { text: "", asks: false };
      const button = (word, approve) => el("button", { type: "button", class: approve ? "yes" : "no", "data-key": `${word} ${one.approval}`, disabled: asks, onclick: () => answer(one, approve) }, word);
      return el(
        "div",
        { class: "card" },
        el("p", { class: "asks" }, name(one.user), one.agent ? [" › agent ", name(one.agent), one.instance ? el("span", { class: "soft" }, ` ${one.instance}`) : ""] : "", " wants to call ", name(one.server), " › ", name(one.tool)),
        el("p", { class: "soft" }, "Rule: ", name(one.rule), `. Asked at ${exact(one.asked)}; refused at ${exact(one.expires)} if nobody answers.`),
        el("pre", { tabindex: "0", "aria-label": "Arguments" }, one.arguments || "no arguments"),
        el("p", { class: "buttons" }, live && !one.cut && !no_approval ? button("Approve", true) : "", live ? button("Deny", false) : "", el("span", { class: "told", role: "status" }, text), why),
      );
    };
    const { counts } = data.now ?? { counts: [0, 0, 0] };
    root.replaceChildren(...calls.map(card), counts[2] > calls.length ? el("p", { class: "soft" }, `${count(counts[2] - calls.length, "more")} not listed.`) : "");
  };

  // ---- now
  const now = () => {
    const root = at("now");
    if (!data.now) return root.replaceChildren(none("Not known: the daemon was not reached."));
    const { daemon, agents, servers, counts } = data.now;
    const beyond = (rows, all) => (all > rows.length ? el("p", { class: "soft" }, `${count(all - rows.length, "more")} not listed.`) : "");
    const open = (is) => (is ? "open" : "closed");
    const about = daemon
      ? `Version ${daemon.version}, up since ${moment(daemon.started)}; ${count(daemon.clients, "client")}, ${count(daemon.in_flight, "call")} in flight; write gate ${open(daemon.write_gate)}, external-call gate ${open(daemon.external_gate)}. `
      : "Calls that wait and the daemon's own state are for operators. ";
    const state_of = (is, ...words) => el("td", { class: is ? "bad" : "" }, is ? el("span", { class: "sign" }, "! ") : "", words);
    const unbounded = (one) => (one.unbounded ? el("span", { class: "bad" }, el("span", { class: "sign" }, " ! "), "unbounded mount") : "");
    const hosts = agents.some((one) => one.host) ? ["Host"] : [];
    const agent = (one) =>
      el("tr", { class: one.ended ? "soft" : "" }, el("td", {}, name(one.agent), " ", el("span", { class: "soft" }, one.id, one.session ? [", session ", name(one.session)] : "")), ...hosts.map(() => el("td", {}, name(one.host ?? "–"))), el("td", {}, name(one.user)),
        state_of(one.attention, one.ended ? `ended, ${one.state}` : one.state, one.stalled ? ", stalled" : "", one.approvals ? `, ${count(one.approvals, "call")} waiting` : "", one.reason ? [": ", name(one.reason)] : ""),
        one.last_event ? when(one.last_event, true) : el("td", {}, "–"),
        el("td", {}, one.jail ? ["jail ", name(one.jail)] : "host, no jail", unbounded(one), one.cwd ? el("span", { class: "soft" }, " in ", name(one.cwd)) : ""),
        el("td", { class: "number" }, one.task === null ? "–" : `#${one.task}`), el("td", { class: "number" }, whole.format(one.calls)), el("td", { class: "number" }, bytes(one.bytes)), el("td", { class: "number" }, short(one.tokens_in)), el("td", { class: "number" }, short(one.tokens_out)));
    const unwell = (one) => ["failed", "blocked", "backing off"].includes(one.state);
    const server = (one) =>
      el("tr", {}, el("td", {}, name(one.id)), state_of(unwell(one), one.state, one.reason ? [": ", name(one.reason)] : ""),
        el("td", {}, name(place(one.id)), unbounded(one), one.network ? el("span", { class: "soft" }, ` network ${one.network}`) : ""),
        el("td", { class: "number" }, whole.format(one.processes)), el("td", { class: "number" }, one.blocked ? `${whole.format(one.tools)}, ${whole.format(one.blocked)} blocked` : whole.format(one.tools)));
    root.replaceChildren(
      el("p", { class: "soft" }, about),
      el("h3", {}, "Agents"),
      agents.length ? table(["Agent", ...hosts, "For", "State", "Last event", "Runs in", "Task", "Calls", "Answers", "Tokens in", "Tokens out"], agents.map(agent), [5, 6, 7, 8, 9].map((at) => at + hosts.length)) : none("None runs or has run."),
      beyond(agents, counts[0]),
      el("h3", {}, "Servers"),
      servers.length ? table(["Server", "State", "Runs in", "Processes", "Tools"], servers.map(server), [3, 4]) : none("None is in the registry."),
      beyond(servers, counts[1]),
    );
  };

  // ---- the trail
  const trail = () => {
    const root = at("trail");
    const report = data.verdict;
    if (!report) return root.replaceChildren(none(data.trail_trouble ?? "Not read."));
    const by = { witness: "the log", note: "the daemon's own note (trail.head), which its user can change" };
    const vouched = report.vouched_by.map((one) => `${by[one.by]}: ${count(one.records, "record")}`).join("; ");
    const promise = report.promised
      ? `to record ${whole.format(report.promised - 1)}, the last that a witness saw; what follows could have been written anew`
      : report.witnessed ? "none: no head in that log agrees with this trail" : "none without a witness: --syslog FILE compares with the log that has the heads";
    const rows = [
      ["Records", `${whole.format(report.records)}, ${whole.format(report.records - report.first_record)} of them in ${count(report.segments, "segment")} here`],
      ["Signed checkpoints", report.has_key ? whole.format(report.checkpoints) : "not checked: there is no key"],
      ["Vouched for by", vouched || "nobody: records may have been removed from its end"],
      ["The promise reaches", promise],
      ["Head", el("code", {}, report.head)],
      ["Root", report.root ? el("code", {}, report.root) : "not known"],
      ["Where", name(data.state_dir)],
    ];
    const items = [...report.faults.map((fault) => ["bad", fault]), ...report.notes.map((note) => ["", note])];
    root.replaceChildren(
      el("p", {}, badge("span")),
      items.length ? el("ul", { class: "faults" }, items.map(([mood, text]) => el("li", { class: mood }, mood ? "✕ " : "Note: ", name(text)))) : "",
      report.fault_count > report.faults.length ? el("p", { class: "soft" }, `And ${count(report.fault_count - report.faults.length, "fault")} more.`) : "",
      report.note_count > report.notes.length ? el("p", { class: "soft" }, `And ${count(report.note_count - report.notes.length, "note")} more.`) : "",
      el("dl", { class: "facts" }, rows.map(([what, value]) => [el("dt", {}, what), el("dd", {}, value)])),
      el("p", { class: "soft" }, `Judged at ${moment(data.made)}. Ask again with `, el("code", {}, "colibri-mcp trail verify"), "."),
    );
  };

  // ---- all of it
  const about = () => {
    const open = day && day.open ? ` ${count(day.open, "call")} had not ended.` : "";
    const what = data.live
      ? "It is kept up to date by colibri-mcp on this machine for as long as that runs, and asks nobody else for anything."
      : `It is a picture of that moment: it loads nothing, sends nothing and does not change.${open}`;
    at("about").textContent = `Made by colibri-mcp ${data.version} at ${moment(data.made)}. ${what} Opened in ${drawn} ms.`;
  };
  let drawn = Math.round(performance.now());
  const build = () => {
    derive();
    head();
    lanes.draw();
    lanes.tasks();
    waiting();
    ways();
    timeline();
    marks();
    cost();
    models();
    now();
    trail();
    if (day) {
      drawers.set("sums", sums);
      drawers.set("chosen", chosen);
    } else at("sums").replaceChildren(none("Not known: the trail was not read."));
    redraw();
    about();
  };
  document.querySelector("main").hidden = false;
  build();
  lanes.watch();
  calls_view.watch(at("time"), ".timeline", () => timeline.bounds());
  let width = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) redraw();
    width = document.body.clientWidth;
  }).observe(document.body);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (day && state.bin !== null) timeline.clear();
    else if (state.chosen) choose(null);
  });
  drawn = Math.round(performance.now());
  about();
  document.documentElement.dataset.drawn = drawn;

  // Takes in a part of the data. All is drawn again soon: not while somebody marks text, nor for nobody, and no more than
  // a tenth of the time.
  let [timer, ended, took] = [null, 0, 0];
  const redo = () => {
    timer = null;
    if (document.hidden || !getSelection().isCollapsed) return void (timer = setTimeout(redo, 1000));
    const begun = performance.now();
    keep(build);
    ended = performance.now();
    took = ended - begun;
  };
  const update = (part) => {
    Object.assign(data, part);
    keep(waiting);
    timer ??= setTimeout(redo, Math.max(0, ended + 9 * took - performance.now()));
  };
  return { data, numbers, update, answer: null };
})();

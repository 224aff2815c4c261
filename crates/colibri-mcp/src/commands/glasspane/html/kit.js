"use strict";
// What draws the page is made of: elements, numbers and times. Text is only ever set as text.
const kit = (() => {
  // ---- making elements

  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return node;
  };
  const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const at = (id) => document.getElementById(id);
  const name = (text) => el("bdi", { class: "name", title: text }, text);
  const none = (text) => el("p", { class: "none" }, text);

  const table = (headings, rows, numbers = []) => {
    // Where there is no room for columns each cell says what it is.
    for (const row of rows) [...row.cells].forEach((cell, at) => (cell.dataset.is = headings[at]));
    return el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "cells" },
        el("thead", {}, el("tr", {}, headings.map((heading, at) => el("th", { scope: "col", class: numbers.includes(at) ? "number" : null }, heading)))),
        el("tbody", {}, rows),
      ),
    );
  };

  // ---- numbers and times

  const whole = new Intl.NumberFormat("en");
  const count = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
  const brief = (number, units, base) => {
    let unit = 0;
    while (number >= base && unit < units.length - 1) {
      number /= base;
      unit += 1;
    }
    const digits = unit === 0 || number >= 100 ? 0 : number >= 10 ? 1 : 2;
    return `${Number(number.toFixed(digits))}${units[unit]}`;
  };
  const bytes = (number) => brief(number, [" B", " kB", " MB", " GB", " TB"], 1000);
  const short = (number) => brief(number, ["", " k", " M", " G", " T"], 1000);
  const time = (ms) => {
    if (ms < 1000) return `${Number(ms.toFixed(ms < 10 ? 1 : 0))} ms`;
    if (ms < 60_000) return `${Number((ms / 1000).toFixed(1))} s`;
    if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms / 1000) % 60)} s`;
    return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms / 60_000) % 60)} min`;
  };
  // People read their own clock; UTC, which the trail has, stands beside it where it differs.
  const iso = (ms) => new Date(ms).toISOString();
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const two = (number) => String(number).padStart(2, "0");
  const offset = (ms) => -new Date(ms).getTimezoneOffset() * 60_000;
  const clock = (ms, seconds) => {
    const at = new Date(ms);
    return `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  };
  const utc = (ms, seconds) => iso(ms).slice(11, seconds ? 19 : 16);
  const date = (ms) => `${new Date(ms).getDate()} ${MONTHS[new Date(ms).getMonth()]}`;
  const zone = (ms) => (offset(ms) ? Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local" : "UTC");
  const beside = (ms, seconds) => (offset(ms) ? ` (${utc(ms, seconds)} UTC)` : " UTC");
  const moment = (ms) => `${date(ms)} ${new Date(ms).getFullYear()}, ${clock(ms)}${beside(ms)}`;
  const exact = (ms) => `${clock(ms, true)}${beside(ms, true)}`;
  // A cell with a time.
  const when = (ms, dated) =>
    el("td", { class: "when", title: iso(ms) }, `${dated ? `${date(ms)} ` : ""}${clock(ms, true)}`, offset(ms) ? el("span", { class: "utc" }, ` ${utc(ms, true)} UTC`) : "");
  const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000].map((step) => step * 1000);
  // The ticks of an axis, where the local clock strikes.
  const ticks = (from, to, most) => {
    const step = STEPS.find((step) => (to - from) / step <= most) ?? STEPS[STEPS.length - 1];
    const ticks = [];
    for (let ms = Math.ceil((from + offset(from)) / step) * step - offset(from); ms <= to; ms += step) {
      const midnight = (ms + offset(ms)) % 86_400_000 === 0;
      ticks.push({ ms, midnight, label: midnight ? date(ms) : clock(ms, step < 60_000), utc: utc(ms, step < 60_000) });
    }
    return ticks;
  };
  // An axis of time: its parts, and its height.
  const axis = (x, from, to, left, right, top) => {
    const parts = [svg("line", { x1: left, x2: right, y1: top, y2: top, class: "axis" })];
    const both = offset(from) !== 0;
    for (const tick of ticks(from, to, Math.max(2, (right - left) / 72))) {
      parts.push(svg("line", { x1: x(tick.ms), x2: x(tick.ms), y1: top, y2: top + 5, class: "axis" }));
      if (x(tick.ms) > right - 20 || x(tick.ms) < left + 14) continue;
      parts.push(svg("text", { x: x(tick.ms), y: top + 18, class: `tick middle${tick.midnight ? " day" : ""}` }, tick.label));
      if (both) parts.push(svg("text", { x: x(tick.ms), y: top + 33, class: "tick middle utc" }, tick.utc));
    }
    parts.push(svg("text", { x: left - 8, y: top + 18, class: "tick end" }, both ? "local" : "UTC"));
    if (both) parts.push(svg("text", { x: left - 8, y: top + 33, class: "tick end utc" }, "UTC"));
    return [parts, both ? 40 : 25];
  };
  const length = (ms) => {
    const units = [[86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1000, "second"]];
    const [unit, noun] = units.find(([unit]) => ms >= unit) ?? units[3];
    return ms === unit ? noun : count(ms / unit, noun);
  };
  // The least round number that is no less, and into how many even parts it is cut.
  const round = (number) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(number, 1)));
    const step = [1, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= number);
    const parts = { 1: 5, 2: 4, 6: 3, 8: 4, 10: 5 }[step] ?? step;
    return [step * power, power === 1 && step < 4 ? step : parts];
  };

  // ---- a window of time

  // The part of an extent of time that a view shows; its buttons, and the pointer on what `plots` selects below `root`.
  // `bounds` says where on such a plot its time begins, and how many pixels it has.
  const lens = (key, what, least, redraw) => {
    const it = { from: 0, to: 1, fits: true };
    let extent = [0, 1];
    let drag = null;
    it.cover = (from, to) => {
      extent = [from, to];
      if (it.fits) [it.from, it.to] = extent;
    };
    it.look = (from, to) => {
      if (to - from < least) [from, to] = [(from + to) / 2 - least / 2, (from + to) / 2 + least / 2];
      const length = Math.min(to - from, extent[1] - extent[0]);
      from = Math.max(extent[0], Math.min(from, extent[1] - length));
      [it.from, it.to, it.fits] = [from, from + length, length >= extent[1] - extent[0]];
      redraw();
    };
    it.fit = () => it.look(...extent);
    it.dragged = () => Boolean(drag && drag.far);
    const zoom = (factor, middle = (it.from + it.to) / 2) => it.look(middle - (middle - it.from) * factor, middle + (it.to - middle) * factor);
    const move = (part) => it.look(it.from + (it.to - it.from) * part, it.to + (it.to - it.from) * part);
    it.controls = (...more) => {
      const button = (name, label, onclick, disabled) => el("button", { type: "button", "data-key": `${key} ${name}`, onclick, "aria-disabled": disabled ? "true" : null }, label);
      return el(
        "div",
        { class: "controls", role: "group", "aria-label": `Time that is shown ${what}` },
        button("fit", "Fit", it.fit, it.fits),
        more.map(([name, label, onclick]) => button(name, label, onclick)),
        button("in", "Zoom in", () => zoom(0.5)),
        button("out", "Zoom out", () => zoom(2), it.fits),
        button("earlier", "Earlier", () => move(-0.5), it.fits),
        button("later", "Later", () => move(0.5), it.fits),
        el("span", { class: "soft" }, `${date(it.from)}, ${clock(it.from, true)} to ${it.to - it.from > 86_400_000 ? `${date(it.to)}, ` : ""}${clock(it.to, true)} local time`),
      );
    };
    it.at = (event, plot, [left, width]) => it.from + ((event.clientX - plot.getBoundingClientRect().left - left) / width) * (it.to - it.from);
    // Once: what is drawn below `root` may be another each time.
    it.watch = (root, plots, bounds = (plot) => [0, plot.clientWidth]) => {
      const plot_of = (event) => event.target.closest?.(plots);
      root.addEventListener("pointerdown", (event) => {
        const plot = plot_of(event);
        if (plot && event.button === 0) drag = { x: event.clientX, width: bounds(plot)[1], far: false };
      });
      root.addEventListener("pointermove", (event) => {
        if (!drag || (!drag.far && Math.abs(event.clientX - drag.x) < 3)) return;
        if (!(event.buttons & 1)) return (drag = null);
        const by = ((drag.x - event.clientX) / drag.width) * (it.to - it.from);
        [drag.x, drag.far] = [event.clientX, true];
        it.look(it.from + by, it.to + by);
      });
      // A click comes after it.
      window.addEventListener("pointerup", () => setTimeout(() => (drag = null)));
      root.addEventListener("wheel", (event) => {
        const plot = plot_of(event);
        if (!plot || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        zoom(event.deltaY > 0 ? 1.3 : 0.77, it.at(event, plot, bounds(plot)));
      }, { passive: false });
    };
    return it;
  };

  // ---- drawing again

  // What had the focus has it again, if it is there.
  const keep = (draw) => {
    const key = document.activeElement?.dataset?.key;
    draw();
    if (key === undefined || document.activeElement?.dataset?.key === key) return;
    [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({ preventScroll: true });
  };

  return { fill, el, svg, table, at, name, none, whole, count, bytes, short, time, iso, clock, date, zone, moment, exact, when, axis, length, round, lens, keep };
})();

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
  const iso = (ms) => new Date(ms).toISOString();
  const clock = (ms, seconds) => iso(ms).slice(11, seconds ? 19 : 16);
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const date = (ms) => `${new Date(ms).getUTCDate()} ${MONTHS[new Date(ms).getUTCMonth()]}`;
  const moment = (ms) => `${date(ms)} ${new Date(ms).getUTCFullYear()}, ${clock(ms)}`;
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

  return { fill, el, svg, table, at, name, none, whole, count, bytes, short, time, iso, clock, date, moment, length, round };
})();

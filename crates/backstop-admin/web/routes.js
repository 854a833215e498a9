// Where a component's events go: how many wait on each way, since when, and why if their way is closed.

import { columns, el, list, mark, say } from "./dom.js";
import { clock, count, duration, number, visible } from "./words.js";

const COLUMNS = ["Route", "Waiting", "Retrying", "Dead", "Oldest due", "State"];
const MOST = 50; // rows that are shown
const NO_HANDLER = "no handler";

export function create() {
  const heads = COLUMNS.map((name) => el("th", { scope: "col", role: "columnheader" }, name));
  return el("section", { class: "routes" },
    el("h3", { class: "part" }, el("span", {}, "What waits, by route"), el("span", { class: "aside" })),
    el("table", { role: "table" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
      el("tbody", { role: "rowgroup" })));
}

export function update(section, { kind, places, routes }, now) {
  const shown = [...routes].sort(byTrouble).slice(0, MOST);
  const paused = routes.filter((route) => route.paused).length;
  const all = routes.length > MOST ? `the first ${MOST} of ${number(routes.length)}` : number(routes.length);
  say(section.querySelector(".aside"), paused > 0 ? `${all}, ${number(paused)} of them not delivered now` : all);
  list(section.querySelector("tbody"), shown, ({ name }) => name, row, (node, route) => refresh(node, route, kind, now));
  // A queue has neither: its events wait, or are in the log.
  const has = (name) => places.some((place) => place.name === name);
  columns(section, { Retrying: has("retrying"), Dead: has("dead") });
}

/** Those whose events are not delivered first, then those with the most events. */
function byTrouble(one, other) {
  const weight = ({ waiting, retrying, dead }) => waiting.events + retrying.events + dead.events;
  return Number(Boolean(other.paused)) - Number(Boolean(one.paused))
    || weight(other) - weight(one) || one.name.localeCompare(other.name);
}

function row() {
  const cell = (index, ...children) => el("td", { role: "cell", "data-column": COLUMNS[index] }, ...children);
  const figure = (index, name) => cell(index, el("div", { class: `figure ${name}` }));
  return el("tr", { role: "row" },
    cell(0, el("div", { class: "type" })),
    figure(1, "waiting"), figure(2, "retrying"), figure(3, "dead"), figure(4, "oldest"),
    cell(5, el("div", { class: "chip" }), el("div", { class: "error" })));
}

function refresh(node, route, kind, now) {
  const find = (name) => node.querySelector(`.${name}`);
  const figure = (name, { events, capped }, tone) => {
    say(find(name), count({ events, capped: capped && events > 0 }));
    mark(find(name), "data-tone", events > 0 ? tone : null);
  };
  say(find("type"), visible(route.name));
  figure("waiting", route.waiting, "quiet");
  figure("retrying", route.retrying, "warn");
  figure("dead", route.dead, "bad");
  const since = route.oldest_due;
  say(find("oldest"), since === null ? "–" : duration(Math.max(0, now - Date.parse(since))));
  mark(find("oldest"), "title", since === null ? "No event is due." : `Created at ${since}.`);
  const { paused } = route;
  say(find("chip"), paused ? sentence(paused, now) : open(route, kind));
  mark(find("chip"), "data-tone", look(route));
  say(find("error"), paused ? reason(paused) : "");
}

function look({ name, paused }) {
  if (paused) return paused.state === "disabled" ? "bad" : "warn";
  return name === NO_HANDLER ? "quiet" : "good";
}

function open({ name }, kind) {
  if (kind === "queue") return name === NO_HANDLER ? "failed at once" : "handled";
  return name === NO_HANDLER ? "buried at once" : "delivered";
}

function sentence({ state, since, next_probe: probe }, now) {
  const at = new Date(since);
  const next = probe === null ? "" : `; next probe ${soon(Date.parse(probe) - now)}`;
  return `${state} since ${clock(at)}, ${duration(Math.max(0, now - at))}${next}`;
}

const soon = (milliseconds) => (milliseconds < 1000 ? "now" : `in ${duration(milliseconds)}`);

const reason = ({ target, why }) => visible(target === null ? why : `${target}: ${why}`);

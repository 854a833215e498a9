// The events an operator should look at: which, where, why, and when they are tried again.

import { columns, el, list, mark, say } from "./dom.js";
import { count, duration, number, tone, visible } from "./words.js";

const COLUMNS = ["Event", "About", "Place", "Error", "Next attempt"];
const SHORT = 180; // characters of an error that are shown without asking

export function create() {
  // Roles are spelled out because the narrow layout turns rows into cards, and browsers then forget that it is
  // a table.
  const heads = COLUMNS.map((name) => el("th", { scope: "col", role: "columnheader" }, name));
  return el("section", { class: "troubled" },
    el("h3", { class: "part" }, el("span", {}, "In trouble"), el("span", { class: "aside" })),
    el("p", { class: "calm" }, "Nothing is in trouble."),
    el("table", { role: "table" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
      el("tbody", { role: "rowgroup" })));
}

export function update(section, report, now) {
  const { troubled } = report;
  section.querySelector(".calm").hidden = troubled.length > 0;
  section.querySelector("table").hidden = troubled.length === 0;
  say(section.querySelector(".aside"), share(report));
  list(section.querySelector("tbody"), troubled, ({ id }) => id, row, (node, event) => refresh(node, event, report.kind, now));
  columns(section, { About: troubled.some(({ aggregate_type, aggregate_id }) => aggregate_type || aggregate_id) });
}

/** "the first 20 of 1,204" when the report holds only some of those in the same places. */
function share({ troubled, places }) {
  if (troubled.length === 0) return "";
  const where = new Set(troubled.map(({ place }) => place));
  const counts = places.filter(({ name }) => where.has(name)).map((place) => place.count);
  const all = counts.reduce((sum, { events }) => sum + events, 0);
  const capped = counts.some((one) => one.capped);
  if (all <= troubled.length && !capped) return number(troubled.length);
  return `the first ${number(troubled.length)} of ${count({ events: all, capped })}`;
}

function row() {
  const cell = (index, ...children) =>
    el("td", { role: "cell", "data-column": COLUMNS[index] }, ...children);
  return el("tr", { role: "row" },
    cell(0, el("div", { class: "type" }), el("code", { class: "id" })),
    cell(1, el("div", { class: "aggregate" }), el("div", { class: "aggregate-id" })),
    cell(2, el("div", { class: "chip" }), el("div", { class: "attempts" })),
    cell(3, el("div", { class: "error" })),
    cell(4, el("div", { class: "next" }), el("div", { class: "age" })));
}

function refresh(node, event, kind, now) {
  const find = (name) => node.querySelector(`.${name}`);
  say(find("type"), visible(event.event_type) || "without a type");
  say(find("id"), visible(event.id));
  say(find("aggregate"), visible(event.aggregate_type));
  say(find("aggregate-id"), visible(event.aggregate_id ?? ""));
  say(find("chip"), event.place);
  mark(find("chip"), "data-tone", tone(event.place, kind));
  say(find("attempts"), event.attempts === 1 ? "1 attempt" : `${number(event.attempts)} attempts`);
  explain(find("error"), visible(event.error ?? "No error was recorded."));
  say(find("next"), next(event, now));
  mark(find("next"), "title", event.next_attempt_at ?? (event.place === "stuck" ? null : "It is not tried again by itself."));
  say(find("age"), `${duration(Math.max(0, now - Date.parse(event.occurred_at)))} old`);
  mark(find("age"), "title", `It happened at ${event.occurred_at}.`);
}

function next({ place, next_attempt_at: at }, now) {
  if (place === "stuck") return "when it is taken over";
  if (at === null) return "none";
  const wait = Date.parse(at) - now;
  return wait > 500 ? `in ${duration(wait)}` : "now";
}

/** A short error as it is; a long one behind its beginning, opened by click or key. */
function explain(box, text) {
  if (box.dataset.text === text) return;
  box.dataset.text = text;
  const line = text.split("\n", 1)[0];
  if (text.length <= SHORT) box.replaceChildren(text);
  else {
    const begin = line.length <= SHORT ? line : `${line.slice(0, SHORT - 20)}…`;
    box.replaceChildren(el("details", {}, el("summary", {}, begin), el("pre", { tabindex: "0" }, text)));
  }
}

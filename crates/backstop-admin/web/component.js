// One component: what it is, how it is, where its events rest and wait, how they move, which are in trouble.

import { el, list, mark, say, svg } from "./dom.js";
import { COVERS, History, draw } from "./history.js";
import * as routes from "./routes.js";
import * as times from "./times.js";
import * as troubled from "./troubled.js";
import { count, events, health, number, rate, tone, visible } from "./words.js";

const COLUMNS = 20; // dots in a row
const ROWS = 3;
const PITCH = 10;

const histories = new WeakMap();

export const key = ({ kind, name }) => `${kind}/${name}`;

export function create() {
  const card = el("article", { class: "component" },
    el("header", {},
      el("h2", {}, el("span", { class: "kind" }), " ", el("span", { class: "name" })),
      el("p", { class: "health state" })),
    el("p", { class: "why" }),
    el("section", { class: "where" },
      el("h3", { class: "part" }, el("span", {}, "Where events are"), el("span", { class: "aside" })),
      el("ul", { class: "places" })),
    routes.create(),
    el("section", { class: "moves" },
      el("h3", { class: "part" },
        el("span", {}, "Since the process began"),
        el("span", { class: "aside" }, `bars: the last ${COVERS}`)),
      el("ul", { class: "flows" })),
    times.create(),
    troubled.create());
  histories.set(card, new Map());
  return card;
}

/** Shows a report that was taken at `now`, in milliseconds of the server's clock. */
export function update(card, report, now) {
  const state = health(report.health);
  mark(card, "data-tone", state.tone);
  mark(card.querySelector(".health"), "data-tone", state.tone);
  say(card.querySelector(".kind"), report.kind);
  say(card.querySelector(".name"), visible(report.name));
  say(card.querySelector(".health"), state.word);
  say(card.querySelector(".why"), visible(report.health.why ?? ""));

  const section = (name, shown) => {
    const found = card.querySelector(`.${name}`);
    found.hidden = !shown;
    return found;
  };
  showPlaces(section("where", report.places.length > 0), report);
  showFlows(section("moves", report.flows.length > 0), report, histories.get(card));
  routes.update(section("routes", report.routes.length > 0), report, now);
  times.update(section("took", report.times.length > 0), report.times);
  // A component that could not be asked must not say that nothing is in trouble.
  const known = report.places.length > 0 || report.troubled.length > 0 || report.health.status === "up";
  troubled.update(section("troubled", known), report, now);
}

function showPlaces(section, { kind, places }) {
  const largest = Math.max(0, ...places.map(resting));
  const dot = scale(largest);
  const rows = Math.ceil(largest / dot / COLUMNS);
  say(section.querySelector(".aside"), caption(largest, dot));
  list(section.querySelector(".places"), places, ({ name }) => name, createPlace, (node, place) => {
    mark(node, "data-tone", tone(place.name, kind));
    mark(node, "data-empty", place.count.events === 0 ? "" : null);
    say(node.querySelector(".label"), place.name);
    say(node.querySelector(".count"), count(place.count));
    pile(node.querySelector(".pile"), Math.ceil(resting(place) / dot), rows);
    say(node.querySelector(".meaning"), place.meaning);
  });
}

const createPlace = () =>
  el("li", { class: "place" },
    el("span", { class: "label" }), el("span", { class: "count" }),
    svg("svg", { class: "pile", "aria-hidden": "true" }),
    el("span", { class: "meaning" }));

/** Events that are drawn. Finished ones are no longer anywhere an operator looks, and would dwarf the others. */
const resting = ({ name, count }) => (tone(name) === "good" ? 0 : count.events);

/** How many events a dot stands for, so that the largest pile fits: 1, 2, 5, 10, 20, 50, … */
function scale(largest) {
  const unit = (step) => [1, 2, 5][step % 3] * 10 ** Math.floor(step / 3);
  let step = 0;
  while (largest / unit(step) > COLUMNS * ROWS) step += 1;
  return unit(step);
}

function caption(largest, dot) {
  if (largest === 0) return "";
  return dot === 1 ? "each dot is an event" : `each dot is ${events(dot)}`;
}

/** Draws the dots; all piles of a component are `rows` high, so that the words below them line up. */
function pile(drawing, dots, rows) {
  mark(drawing, "viewBox", `0 0 ${COLUMNS * PITCH} ${rows * PITCH}`);
  mark(drawing, "display", rows === 0 ? "none" : null);
  while (drawing.childElementCount > dots) drawing.lastElementChild.remove();
  while (drawing.childElementCount < dots) {
    const index = drawing.childElementCount;
    const [column, row] = [index % COLUMNS, Math.floor(index / COLUMNS)];
    drawing.append(svg("circle", { cx: column * PITCH + 4, cy: row * PITCH + 5, r: 3.5 }));
  }
}

function showFlows(section, { kind, flows }, histories) {
  const at = performance.now() / 1000; // a clock that nobody sets: rates must not jump with the wall clock
  list(section.querySelector(".flows"), flows, ({ name }) => name, createFlow, (node, flow) => {
    if (!histories.has(flow.name)) histories.set(flow.name, new History());
    const history = histories.get(flow.name);
    history.note(at, flow.total);
    mark(node, "data-tone", tone(flow.name, kind));
    mark(node, "data-empty", flow.total === 0 ? "" : null);
    mark(node, "title", flow.meaning);
    say(node.querySelector(".label"), flow.name);
    say(node.querySelector(".count"), number(flow.total));
    say(node.querySelector(".rate"), rate(history.rate()));
    const peak = Math.max(draw(node.querySelector(".bars"), history.bars()), history.rate());
    say(node.querySelector(".peak"), peak > 0 ? `peak ${rate(peak)}` : "");
    say(node.querySelector(".meaning"), flow.meaning);
  });
}

const createFlow = () =>
  el("li", { class: "flow" },
    el("span", { class: "label" }), el("span", { class: "peak" }),
    el("span", { class: "count" }), el("span", { class: "rate" }),
    svg("svg", { class: "bars", "aria-hidden": "true", preserveAspectRatio: "none" }),
    el("span", { class: "meaning hidden" }));

// How long things took lately: what most of them took, what the slowest took, and a bar for each bucket between.

import { el, list, mark, say, svg } from "./dom.js";
import { COVERS } from "./history.js";
import { events, span } from "./words.js";

const WINDOW = 180; // seconds that are looked back, as the bars of the flows do
const ENOUGH = 20; // so many say something by themselves; with fewer all since the process began are shown
const WIDTH = 9;
const PITCH = 11;
const HEIGHT = 32;

const samples = new WeakMap();

export function create() {
  const section = el("section", { class: "took" },
    el("h3", { class: "part" },
      el("span", {}, "How long it took"), el("span", { class: "aside" }, `in the last ${COVERS}`)),
    el("ul", { class: "flows" }));
  samples.set(section, new Map());
  return section;
}

export function update(section, times) {
  const at = performance.now() / 1000;
  const known = samples.get(section);
  list(section.querySelector(".flows"), times, ({ name }) => name, createTimes, (node, one) => {
    if (!known.has(one.name)) known.set(one.name, []);
    const noted = known.get(one.name);
    const added = lately(noted, at, one.counts);
    const isEnough = total(added) >= ENOUGH || at - noted[0].at >= WINDOW;
    const recent = isEnough ? added : one.counts;
    const all = total(recent);
    mark(node, "data-tone", "quiet");
    mark(node, "data-empty", all === 0 ? "" : null);
    mark(node, "title", one.meaning);
    say(node.querySelector(".label"), one.name);
    say(node.querySelector(".peak"), all > 0 ? events(all) + (isEnough ? "" : " since the process began") : "");
    say(node.querySelector(".count"), all > 0 ? `half in ${quantile(recent, one.bounds, 0.5)}` : "–");
    say(node.querySelector(".rate"), all > 0 ? `95 % in ${quantile(recent, one.bounds, 0.95)}` : "");
    say(node.querySelector(".meaning"), one.meaning);
    draw(node.querySelector(".bars"), recent);
  });
}

const createTimes = () =>
  el("li", { class: "flow" },
    el("span", { class: "label" }), el("span", { class: "peak" }),
    el("span", { class: "count" }), el("span", { class: "rate" }),
    svg("svg", { class: "bars", "aria-hidden": "true", preserveAspectRatio: "none" }),
    el("span", { class: "meaning hidden" }));

/** What was added since the page was opened or the window began. Counts that shrank mean that the process began anew. */
function lately(noted, at, counts) {
  const last = noted.at(-1);
  if (last && last.counts.some((count, index) => count > counts[index])) noted.length = 0;
  noted.push({ at, counts });
  while (noted.length > 2 && noted[1].at < at - WINDOW) noted.shift();
  return counts.map((count, index) => count - noted[0].counts[index]);
}

const total = (counts) => counts.reduce((sum, count) => sum + count, 0);

/** The time within which that share was over: the bound of its bucket, since times in one bucket are not told apart. */
function quantile(counts, bounds, share) {
  const all = total(counts);
  let below = 0;
  const bucket = counts.findIndex((count) => (below += count) >= all * share);
  return bucket < bounds.length ? span(bounds[bucket]) : `over ${span(bounds.at(-1))}`;
}

function draw(chart, counts) {
  const peak = Math.max(1, ...counts);
  chart.setAttribute("viewBox", `0 0 ${counts.length * PITCH} ${HEIGHT}`);
  chart.replaceChildren(...counts.map((count, index) => {
    const height = count > 0 ? Math.max(2, (count / peak) * HEIGHT) : 1;
    const frame = { x: index * PITCH, y: HEIGHT - height, width: WIDTH, height };
    return svg("rect", count > 0 ? frame : { ...frame, class: "idle" });
  }));
}

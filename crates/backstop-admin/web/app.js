// Asks for the reports, again and again, and shows what came back, or that nothing did.

import * as component from "./component.js";
import { el, list, mark, say } from "./dom.js";
import * as token from "./token.js";
import { clock, count, health, tone, visible } from "./words.js";

const SECOND = 1000;
const PATIENCE = 5 * SECOND; // the server itself waits 2 s for a component
const VISIBLE = SECOND;
const HIDDEN = 15 * SECOND;
const LONGEST = 10 * SECOND; // between two questions to a server that does not answer

const at = (id) => document.getElementById(id);

let lastAnswer = null;
let failures = 0;
let asking = false;
let timer;

async function ask() {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  try {
    const answer = await request();
    show(answer.reports, answer.now);
    failures = 0;
    lastAnswer = new Date();
    tellFresh();
  } catch (error) {
    failures += 1;
    tellStale(error.message);
  } finally {
    asking = false;
    timer = setTimeout(ask, pause());
  }
}

async function request() {
  const signal = AbortSignal.timeout(PATIENCE);
  const answer = await fetch("/api/v1/components", { signal, headers: token.headers() }).catch(({ name }) => {
    throw new Error(name === "TimeoutError" ? "The server does not answer."
      : "The server cannot be reached. Does the process still run?");
  });
  if (answer.status === 401) {
    if (at("access").hidden) token.ask(at("access"), ask);
    throw new Error("This dashboard needs an access token.");
  }
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  return { reports: await answer.json(), now: serverTime(answer) };
}

function pause() {
  const backoff = failures > 0 ? Math.min(LONGEST, VISIBLE * 2 ** (failures - 1)) : VISIBLE;
  return document.hidden ? Math.max(HIDDEN, backoff) : backoff;
}

/** The server's clock, so that "in 4 s" is right where the two differ. The header knows whole seconds only. */
function serverTime(answer) {
  const [here, there] = [Date.now(), Date.parse(answer.headers.get("date") ?? "")];
  return Math.abs(there - here) > 2 * SECOND ? there : here;
}

function show(reports, now) {
  list(at("components"), reports, component.key, component.create, (card, report) =>
    component.update(card, report, now));
  showIndex(reports);
  const worst = Math.max(0, ...reports.map((report) => health(report.health).rank));
  const sum = rest(reports);
  const look = reports.length === 0 ? "quiet" : overall(worst, sum);
  mark(at("verdict"), "data-tone", look);
  say(at("headline"), headline(reports, worst));
  summarise(at("summary"), reports, sum);
  entitle(look, worst > 0 ? at("headline").textContent : trouble(sum));
}

/** Where there is more than one component: each with its state, on the first screen. */
function showIndex(reports) {
  [...at("components").children].forEach((card, index) => mark(card, "id", `component-${index + 1}`));
  const create = () => el("li", { class: "state" }, el("a", {}));
  list(at("index"), reports.length > 1 ? reports : [], component.key, create, (item, report) => {
    const [link, state] = [item.querySelector("a"), health(report.health)];
    mark(item, "data-tone", state.tone);
    mark(link, "href", `#component-${reports.indexOf(report) + 1}`);
    mark(link, "title", state.word);
    say(link, title(report));
  });
}

/** Events in each unfinished place, over all components. */
function rest(reports) {
  const sum = new Map();
  const looking = ({ kind, places }) => places.map((place) => ({ ...place, look: tone(place.name, kind) }));
  for (const { name, count, look } of reports.flatMap(looking)) {
    if (look === "good") continue;
    const { events, capped } = sum.get(name) ?? { events: 0, capped: false };
    sum.set(name, { events: events + count.events, capped: capped || count.capped, look });
  }
  return sum;
}

const has = (sum, wanted) => [...sum].some(([, { events, look }]) => look === wanted && events > 0);

function overall(worst, sum) {
  if (worst === 2) return "bad";
  return worst === 1 || has(sum, "bad") ? "warn" : "good";
}

const title = ({ kind, name }) => `${kind} ${visible(name)}`;

function headline(reports, worst) {
  if (reports.length === 0) return "Nothing is watched";
  const affected = reports.filter((report) => health(report.health).rank === worst);
  const word = health(affected[0].health).word.toLowerCase();
  if (affected.length === 1) return `${title(affected[0])} is ${word}`;
  if (affected.length < reports.length) return `${affected.length} of ${reports.length} components are ${word}`;
  return `${reports.length === 2 ? "Both" : `All ${reports.length}`} components are ${word}`;
}

function summarise(line, reports, sum) {
  const parts = [...sum].filter(([, { events }]) => events > 0);
  if (reports.length === 0) return say(line, "This process has no component that could be shown.");
  if (parts.length === 0) return say(line, "No event is waiting.");
  const text = parts.map(([name, sum]) => `${count(sum)} ${name}`).join(", ");
  if (line.textContent === text) return;
  line.replaceChildren(...parts.flatMap(([name, sum], index) => [
    ...(index > 0 ? [", "] : []),
    el("span", { "data-tone": sum.look }, `${count(sum)} ${name}`),
  ]));
}

function trouble(sum) {
  const bad = [...sum].filter(([, { events, look }]) => look === "bad" && events > 0);
  return bad.map(([name, sum]) => `${count(sum)} ${name}`).join(", ");
}

function tellFresh() {
  document.body.classList.remove("is-stale");
  say(at("stale"), "");
  at("refreshed").replaceChildren("refreshed ", el("time", { datetime: lastAnswer.toISOString() }, clock(lastAnswer)));
}

function tellStale(reason) {
  document.body.classList.add("is-stale");
  mark(at("verdict"), "data-tone", "quiet");
  say(at("headline"), "Unknown");
  say(at("summary"), `${reason} Asking again…`);
  say(at("stale"), lastAnswer ? `No answer since ${clock(lastAnswer)} — these figures are old` : "No answer yet");
  entitle("bad", "No answer");
}

/** The tab's title and mark: an operator with forty tabs sees this one turn. */
function entitle(look, words) {
  const title = words ? `${words} · Backstop` : "Backstop";
  if (document.title !== title) document.title = title;
  const colour = { warn: "#c77700", bad: "#d03a2f" }[look] ?? "#0f6b57";
  const drawing = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="${colour}">`
    + `<circle cx="3" cy="12" r="1.5"/><circle cx="8" cy="12" r="2"/><circle cx="14.2" cy="12" r="2.8"/>`
    + `<rect x="18.5" y="2" width="4" height="20" rx="1.5"/></svg>`;
  mark(document.querySelector("link[rel=icon]"), "href", `data:image/svg+xml,${encodeURIComponent(drawing)}`);
}

document.addEventListener("visibilitychange", () => document.hidden || ask());
ask();

// Numbers, times and states in the words of an operator.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const wallClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const number = (value) => whole.format(value);

/** A count as reported: "100,000+" when there are more than were counted. */
export const count = ({ events, capped }) => number(events) + (capped ? "+" : "");

/** Events per second; `null` as long as nothing is known. */
export function rate(perSecond) {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.1) return "<0.1/s";
  return `${(perSecond < 9.95 ? fine : whole).format(perSecond)}/s`;
}

export const clock = (moment) => wallClock.format(moment);

/** How long, in one unit that suits: "4 s", "12 min", "3 h", "5 d". */
export function duration(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${number(Math.round(seconds / 86400))} d`;
}

/** A short time in its unit: "2.5 ms", "1 s", "5 min". */
export function span(seconds) {
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  return seconds < 120 ? `${seconds} s` : `${seconds / 60} min`;
}

export const events = (n, capped = false) =>
  `${count({ events: n, capped })} ${n === 1 && !capped ? "event" : "events"}`;

const TONES = {
  good: ["done", "delivered", "sent", "processed", "completed", "handled"],
  warn: ["retrying", "retry", "retried", "failed", "failing", "deferred", "dropped", "stuck", "taken over", "late"],
  bad: ["dead", "buried", "lost", "stored", "refused"],
};

/**
 * How a place or a flow looks: `good` is finished, `warn` repairs itself, `bad` waits for a human. In most components
 * what failed is tried again; in a queue it is where an event ends.
 */
export function tone(name, kind) {
  if (kind === "queue" && name === "failed") return "bad";
  for (const [found, names] of Object.entries(TONES)) if (names.includes(name)) return found;
  return "quiet";
}

const HEALTH = {
  up: { word: "Up", tone: "good", rank: 0 },
  degraded: { word: "Degraded", tone: "warn", rank: 1 },
  down: { word: "Down", tone: "bad", rank: 2 },
};

/** A component's health as a word, a tone, and a rank that grows as it gets worse. */
export const health = ({ status }) => HEALTH[status] ?? { word: status, tone: "warn", rank: 1 };

/**
 * Shows characters that would hide or reorder the text around them (controls, bidirectional overrides,
 * zero-width ones) as their code, so that what is read is what was received.
 */
export const visible = (text) =>
  text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (hidden) => `\\u${hidden.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

// What a flow's total was over the last minutes: its rate now, and its bars.

import { svg } from "./dom.js";

const WINDOW = 180; // seconds that the bars cover
const BIN = 3; // seconds that a bar stands for
const RECENT = 10; // seconds that the rate is taken over

export const COVERS = `${WINDOW / 60} minutes`;

const BARS = WINDOW / BIN;
const WIDTH = 3;
const PITCH = 4;
const HEIGHT = 32;

export class History {
  #samples = [];

  /** Notes the total at a moment, in seconds. A total that shrank means that the process began anew. */
  note(at, total) {
    const last = this.#samples.at(-1);
    if (last && (total < last.total || at <= last.at)) this.#samples = [];
    this.#samples.push({ at, total });
    const horizon = at - WINDOW - BIN;
    while (this.#samples.length > 2 && this.#samples[1].at < horizon) this.#samples.shift();
  }

  /** Events per second over the last seconds, or null while there is only one sample. */
  rate() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (!last || first === last) return null;
    return this.#between(Math.max(first.at, last.at - RECENT), last.at);
  }

  /** One rate per bar, oldest first; null where nothing is known. Bars sit on whole multiples of their width. */
  bars() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const newest = Math.floor((last?.at ?? 0) / BIN) * BIN;
    return Array.from({ length: BARS }, (_, index) => {
      const begin = newest - (BARS - 1 - index) * BIN;
      const [from, to] = [Math.max(begin, first?.at ?? 0), Math.min(begin + BIN, last?.at ?? 0)];
      // A sliver of a bar would show one event as a burst.
      return to - from < 1 ? null : this.#between(from, to);
    });
  }

  #between(from, to) {
    return (this.#totalAt(to) - this.#totalAt(from)) / (to - from);
  }

  #totalAt(at) {
    let index = this.#samples.length - 1;
    while (index > 1 && this.#samples[index - 1].at > at) index -= 1;
    const [before, after] = [this.#samples[index - 1], this.#samples[index]];
    return before.total + ((after.total - before.total) * (at - before.at)) / (after.at - before.at);
  }
}

/** Draws the bars into `chart` and returns the highest rate. */
export function draw(chart, bars) {
  const peak = Math.max(0, ...bars);
  chart.setAttribute("viewBox", `0 0 ${BARS * PITCH} ${HEIGHT}`);
  chart.replaceChildren(
    ...bars.flatMap((rate, index) => {
      if (rate === null) return [];
      // Nothing happened is a thin line, so that it differs from nothing known.
      const height = rate > 0 ? Math.max(2, (rate / peak) * HEIGHT) : 1;
      const frame = { x: index * PITCH, y: HEIGHT - height, width: WIDTH, height };
      return [svg("rect", rate > 0 ? frame : { ...frame, class: "idle" })];
    }),
  );
  return peak;
}

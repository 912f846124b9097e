/** A time axis in seconds, from left to right. */

import { s } from "./dom.js";
import { duration } from "./format.js";

const STEPS = [1, 2, 5];

/** Return about `number` round values from `begin` to `end`, with their labels: [{at, text}]. */
export function ticks(begin, end, number) {
  const rough = (end - begin) / number;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = (STEPS.find((one) => one * power >= rough) ?? 10) * power;
  const found = [];
  for (let at = Math.ceil(begin / step) * step; at <= end + step / 1e6; at += step) found.push(at);
  return found.map((at) => ({ at, text: at.toFixed(Math.max(0, -Math.floor(Math.log10(step)))) }));
}

/** Maps seconds to pixels. */
export class Axis {
  constructor(begin, end, left, width) {
    Object.assign(this, { begin, end, left, width });
  }

  x(at) {
    const share = (at - this.begin) / (this.end - this.begin);
    return this.left + this.width * Math.min(Math.max(share, 0), 1);
  }

  /** Return a grid from `top` to `bottom`, with labels at the height `textAt`. */
  draw(top, bottom, textAt) {
    const grid = s("g", { class: "axis", "aria-hidden": "true" });
    for (const { at, text } of ticks(this.begin, this.end, Math.max(2, this.width / 90))) {
      const x = this.x(at).toFixed(1);
      grid.append(s("line", { x1: x, x2: x, y1: top, y2: bottom }), s("text", { x, y: textAt }, `${text} s`));
    }
    return grid;
  }

  /** Return a vertical line from `top` to `bottom`, with a label beside its upper end; null if it is off the axis. */
  mark(at, name, label, top, bottom) {
    if (at === null || at === undefined || at < this.begin || at > this.end) return null;
    const x = this.x(at).toFixed(1);
    const right = this.x(at) > this.left + this.width - 90;
    return s(
      "g",
      { class: `mark ${name}`, role: "img", "aria-label": `${label}: ${duration(at)}` },
      s("line", { x1: x, x2: x, y1: top, y2: bottom }),
      s("text", { x: right ? x - 4 : Number(x) + 4, y: top + 9, "text-anchor": right ? "end" : "start" }, label),
    );
  }
}

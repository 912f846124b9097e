/** Progress bars, makespan charts, and badges of states. */

import { h, s, setAttribute, setText } from "./dom.js";
import { duration } from "./format.js";

const WIDTH = 150;
const HEIGHT = 22;

export const makeBadge = () => h("span", { class: "badge" });

/** Show a state as a badge; its text says the same as its colour. */
export function showBadge(badge, state) {
  setText(badge, state.replaceAll("_", " ").toLowerCase());
  setAttribute(badge, "data-state", state);
}

export const makeBar = () => h("progress", { max: "1", value: "0" });

/** Show a share from 0 to 1; the text is for screen readers, and shown as a tooltip. */
export function showBar(bar, share, text) {
  setAttribute(bar, "value", share);
  setAttribute(bar, "aria-label", text);
  bar.title = text;
}

/** A chart of the makespan: the bar is the elapsed time, the lines are the planned makespan and the lower bound. */
export const makeBullet = () =>
  s(
    "svg",
    { class: "bullet", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img" },
    s("rect", { class: "track", x: 0, y: 5, width: WIDTH, height: 12, rx: 3 }),
    s("rect", { class: "passed", x: 0, y: 8, height: 6, rx: 1 }),
    s("line", { class: "bound", y1: 2, y2: 20 }),
    s("line", { class: "planned", y1: 2, y2: 20 }),
  );

/**
 * Show how long a batch takes or took, in seconds since its time 0.
 *
 * @param {number|null} passed
 * @param {number|null} planned
 * @param {number|null} bound
 */
export function showBullet(bullet, { passed, planned, bound }) {
  const [, bar, boundLine, plannedLine] = bullet.children;
  const most = 1.1 * Math.max(passed ?? 0, planned ?? 0, bound ?? 0, 1e-9);
  const place = (value) => ((WIDTH * (value ?? 0)) / most).toFixed(1);
  setAttribute(bar, "width", place(passed));
  setAttribute(bar, "class", planned !== null && passed > 1.05 * planned ? "passed late" : "passed");
  for (const [line, value] of [
    [boundLine, bound],
    [plannedLine, planned],
  ]) {
    setAttribute(line, "x1", place(value));
    setAttribute(line, "x2", place(value));
    setAttribute(line, "visibility", value === null ? "hidden" : "visible");
  }
  setAttribute(bullet, "aria-label", bulletText({ passed, planned, bound }));
}

export const bulletText = ({ passed, planned, bound }) =>
  `${duration(passed)} of planned ${duration(planned)}, lower bound ${duration(bound)}`;

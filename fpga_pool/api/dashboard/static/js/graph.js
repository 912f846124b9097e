/** A pipeline as a graph. Subtasks follow their predecessors, to the right or, if the graph is long, downwards. */

import { functionColours } from "./colours.js";
import { markButton, s } from "./dom.js";
import { jobName } from "./format.js";

const BOX = { width: 104, height: 38 };
/** Distances between the boxes of successive levels, and between those of one level. */
const AFTER = 34;
const BESIDE = 14;
/** The picture shrinks to the available width, but not below this share of its full width; then it scrolls. */
const SMALLEST = 0.5;

/** Return the picture; `open` is called with the subtask that was chosen. */
export function pipelineGraph(subtasks, open) {
  const byUuid = new Map(subtasks.map((job) => [job.uuid, job]));
  const depths = new Map();
  for (const job of subtasks) {
    // the list has each subtask after its predecessors
    depths.set(job.uuid, Math.max(-1, ...job.predecessors.map((uuid) => depths.get(uuid) ?? -1)) + 1);
  }
  const levels = Map.groupBy(subtasks, (job) => depths.get(job.uuid));
  const most = Math.max(...[...levels.values()].map((level) => level.length));
  const isDown = levels.size > most;
  const step = isDown
    ? { x: BOX.width + BESIDE, y: BOX.height + AFTER }
    : { x: BOX.width + AFTER, y: BOX.height + BESIDE };
  const places = new Map();
  for (const [depth, level] of levels) {
    level.forEach((job, number) => {
      const place = number + (most - level.length) / 2;
      const [right, down] = isDown ? [place, depth] : [depth, place];
      places.set(job.uuid, { x: right * step.x + 2, y: down * step.y + 2 });
    });
  }
  const ends = [...places.values()];
  const width = Math.max(...ends.map(({ x }) => x)) + BOX.width + 2;
  const height = Math.max(...ends.map(({ y }) => y)) + BOX.height + 2;
  const svg = s("svg", {
    class: "graph",
    role: "group",
    "aria-label": "Subtasks and what they read",
    viewBox: `0 0 ${width} ${height}`,
    width,
  });
  svg.style.minWidth = `${SMALLEST * width}px`;
  for (const job of subtasks) {
    const before = job.predecessors.map((uuid) => byUuid.get(uuid)).filter(Boolean);
    svg.prepend(...before.map(({ uuid }) => edge(places.get(uuid), places.get(job.uuid), isDown)));
    svg.append(box(job, before, places.get(job.uuid), open));
  }
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.append(svg);
  return scroll;
}

function edge(from, to, isDown) {
  if (isDown) {
    const [x1, y1, x2, y2] = [from.x + BOX.width / 2, from.y + BOX.height, to.x + BOX.width / 2, to.y];
    const bend = (y2 - y1) / 2;
    return s("path", { class: "edge", d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` });
  }
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = (x2 - x1) / 2;
  return s("path", { class: "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
}

function box(job, before, { x, y }, open) {
  const place = job.slot ? `, on ${job.slot}` : "";
  const reads = before.length ? `, reads ${before.map(jobName).join(", ")}` : "";
  const label = `${jobName(job)}: ${job.function}, ${job.state.toLowerCase()}${place}${reads}`;
  const cut = (text) => (text.length > 15 ? `${text.slice(0, 14)}…` : text);
  return markButton(
    "g",
    label,
    () => open(job),
    { class: `job ${functionColours.classOf(job.function)}`, tabindex: "0", "data-state": job.state },
    s("title", {}, label),
    s("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 5 }),
    s("text", { x: x + 7, y: y + 15, class: "strong" }, cut(job.name || job.function)),
    s("text", { x: x + 7, y: y + 30 }, cut(job.state.replaceAll("_", " ").toLowerCase())),
  );
}

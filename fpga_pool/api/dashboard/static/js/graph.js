/** A pipeline as a graph: subtasks from left to right, each after those whose results it reads. */

import { functionColours } from "./colours.js";
import { markButton, s } from "./dom.js";
import { jobName } from "./format.js";

const BOX = { width: 104, height: 38 };
const GAP = { x: 34, y: 14 };

/** Return the picture; `open` gets the subtask that was chosen. */
export function pipelineGraph(subtasks, open) {
  const byUuid = new Map(subtasks.map((job) => [job.uuid, job]));
  const depths = new Map();
  for (const job of subtasks) {
    // each comes after its predecessors
    depths.set(job.uuid, Math.max(-1, ...job.predecessors.map((uuid) => depths.get(uuid) ?? -1)) + 1);
  }
  const columns = Map.groupBy(subtasks, (job) => depths.get(job.uuid));
  const places = new Map();
  for (const [depth, column] of columns) {
    column.forEach((job, row) =>
      places.set(job.uuid, { x: depth * (BOX.width + GAP.x) + 2, y: row * (BOX.height + GAP.y) + 2 }),
    );
  }
  const most = Math.max(...[...columns.values()].map((column) => column.length));
  const svg = s("svg", {
    class: "graph",
    role: "group",
    "aria-label": "Subtasks and what they read",
    width: columns.size * (BOX.width + GAP.x) - GAP.x + 4,
    height: most * (BOX.height + GAP.y) - GAP.y + 4,
  });
  for (const job of subtasks) {
    for (const uuid of job.predecessors) if (byUuid.has(uuid)) svg.append(edge(places.get(uuid), places.get(job.uuid)));
  }
  for (const job of subtasks) {
    const before = job.predecessors.map((uuid) => byUuid.get(uuid)).filter(Boolean);
    svg.append(box(job, before, places.get(job.uuid), open));
  }
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.append(svg);
  return scroll;
}

function edge(from, to) {
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

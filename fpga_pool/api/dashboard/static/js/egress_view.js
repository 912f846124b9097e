/** Egress of requesters: the rates that are planned for their flows, stacked, with the limit of the host. */

import { Axis } from "./axis.js";
import { functionColours } from "./colours.js";
import { h, markButton, panel, reconcile, s, scrollingTable, setText } from "./dom.js";
import { byName, bytes, count, jobName, rate, seconds } from "./format.js";
import { isEnded } from "./pool.js";

const COLUMNS = ["Job", "Function", "From", "To", "Input", "Rate now", "State"];

const HEIGHT = 130;
const LEFT = 86;
const TOP = 14;

export class EgressView {
  parts = new Set(["work", "hosts", "all"]);
  moves = true;

  constructor(pool, open) {
    this.pool = pool;
    this.open = open;
    this.charts = h("div", { class: "charts" });
    this.body = h("tbody");
    this.empty = h("p", { class: "empty" }, "No batch with planned rates yet.");
    this.element = h(
      "div",
      { class: "view" },
      panel("egress", "Planned egress of requesters", this.charts, this.empty),
      panel("flows", "Flows now", scrollingTable("Flows", COLUMNS, this.body)),
    );
  }

  update() {
    const now = this.pool.now();
    const open = this.pool.followedBatches.filter((batch) => !isEnded(batch));
    const shown = open.length || !this.pool.shownBatch ? open : [this.pool.shownBatch];
    const flows = shown
      .flatMap((batch) => this.pool.jobsOf(batch.uuid))
      .filter((job) => job.dispatched_at && job.transfer?.length);
    const byRequester = [...Map.groupBy(flows, (job) => job.requester)].sort(([a], [b]) => byName(a, b));
    this.empty.hidden = flows.length > 0;
    const ends = flows.map((job) => seconds(job.dispatched_at) + job.transfer.at(-1).end_s);
    const zero = Math.min(...flows.map((job) => seconds(job.dispatched_at)));
    const last = Math.max(...ends, open.length ? now + 1 : 0) - zero;
    const openJob = (job) => this.open("job", `${job.batch_uuid}.${job.uuid}`);
    reconcile(
      this.charts,
      byRequester,
      ([name]) => name,
      ([name]) => makeChart(name),
      (figure, [name, jobs]) => {
        const limit = this.pool.hosts.find((host) => host.name === name)?.egress_bps ?? null;
        const total = jobs.reduce((sum, job) => sum + rateAt(job, now), 0);
        setText(figure.firstChild, `${name}: ${rate(total)} of ${rate(limit)}`);
        figure.lastChild.replaceChildren(
          drawRates(
            jobs,
            { zero, now: open.length ? now - zero : null, last, limit, open: openJob },
            figure.clientWidth || 480,
          ),
        );
      },
    );
    const sending = flows
      .filter((job) => rateAt(job, now) > 0 && job.state === "WAITING_INPUT")
      .sort((a, b) => a.index - b.index);
    reconcile(
      this.body,
      sending.slice(0, 200),
      (job) => job.uuid,
      (job) => this.#makeRow(job),
      (row, job) => {
        setText(row.children[3], job.host);
        setText(row.children[5], rate(rateAt(job, now)));
        setText(row.children[6], job.state.replaceAll("_", " ").toLowerCase());
      },
    );
  }

  #makeRow(job) {
    const open = () => this.open("job", `${job.batch_uuid}.${job.uuid}`);
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        h("button", { type: "button", class: "plain link", on: { click: open } }, jobName(job)),
      ),
      h("td", {}, job.function),
      h("td", {}, job.requester),
      h("td"),
      h("td", {}, bytes(job.input_bytes)),
      h("td"),
      h("td"),
    );
  }
}

const makeChart = (name) => h("figure", { "aria-label": `Egress of ${name}` }, h("figcaption"), h("div"));

/** Return the planned rate of a job's input at a moment, bits per second. */
function rateAt(job, at) {
  const elapsed = at - seconds(job.dispatched_at);
  return job.transfer.find((piece) => piece.begin_s <= elapsed && elapsed < piece.end_s)?.bps ?? 0;
}

/** Return the pieces of all flows, stacked: [{job, begin, end, below, bps}], in seconds since `zero`. */
function stacked(jobs, zero) {
  const changes = jobs.flatMap((job) =>
    job.transfer.flatMap(({ begin_s: begin, end_s: end, bps }) => {
      const late = seconds(job.dispatched_at) - zero;
      return [
        { at: rounded(late + begin), job, by: bps ?? 0 },
        { at: rounded(late + end), job, by: -(bps ?? 0) },
      ];
    }),
  );
  changes.sort((a, b) => a.at - b.at || a.by - b.by);
  const active = new Map();
  const pieces = [];
  changes.forEach(({ at, job, by }, number) => {
    active.set(job, (active.get(job) ?? 0) + by);
    if (active.get(job) <= 0) active.delete(job);
    const end = changes[number + 1]?.at ?? at;
    if (end === at) return;
    let below = 0;
    for (const [sender, bps] of active) {
      pieces.push({ job: sender, begin: at, end, below, bps });
      below += bps;
    }
  });
  return pieces;
}

/** One flow ends where the next begins: that they do not overlap by a rounding error, times are whole milliseconds. */
const rounded = (at) => Math.round(1000 * at) / 1000;

function drawRates(jobs, { zero, now, last, limit, open }, width) {
  const pieces = stacked(jobs, zero);
  const axis = new Axis(0, last, LEFT, width - LEFT - 14);
  const highest = 1.08 * Math.max(limit ?? 0, ...pieces.map((piece) => piece.below + piece.bps), 1);
  const bottom = HEIGHT - 24;
  const y = (bps) => bottom - ((bottom - TOP) * bps) / highest;
  const label = `${count(jobs.length, "flow")}, limit ${rate(limit)}`;
  const svg = s(
    "svg",
    { width, height: HEIGHT, role: "group", "aria-label": label },
    axis.draw(TOP, bottom, bottom + 15),
  );
  for (const [job, ofJob] of Map.groupBy(pieces, (piece) => piece.job)) {
    const highestRate = rate(Math.max(...ofJob.map((piece) => piece.bps)));
    const text = `${jobName(job)}: ${job.function}, ${bytes(job.input_bytes)} to ${job.host}, at most ${highestRate}`;
    svg.append(
      markButton(
        "g",
        text,
        () => open(job),
        { class: `job flow ${functionColours.classOf(job.function)}` },
        s("title", {}, text),
        s("path", { d: ofJob.map((piece) => boxOf(piece, axis, y)).join("") }),
      ),
    );
  }
  if (limit !== null) {
    svg.append(
      s("line", { class: "limit", x1: LEFT, x2: width - 14, y1: y(limit), y2: y(limit) }),
      s("text", { class: "slot-name", x: LEFT - 8, y: y(limit) + 4 }, rate(limit)),
    );
  }
  const line = axis.mark(now, "now", "now", 2, bottom);
  if (line) svg.append(line);
  return svg;
}

function boxOf({ begin, end, below, bps }, axis, y) {
  const [left, right, top, foot] = [axis.x(begin), axis.x(end), y(below + bps), y(below)].map((one) => one.toFixed(1));
  return `M${left} ${foot}V${top}H${right}V${foot}Z`;
}

/**
 * The egress view: for each requester the planned rates of its flows, stacked, with the limit of the host, and the
 * rates that the responders have measured.
 */

import { get } from "./api.js";
import { Axis } from "./axis.js";
import { functionColours } from "./colours.js";
import { h, markButton, panel, reconcile, s, scrollingTable, setText } from "./dom.js";
import { byName, bytes, count, duration, jobName, rate, seconds } from "./format.js";
import { Poll } from "./poll.js";
import { isEnded } from "./pool.js";
import { Roving } from "./roving.js";

const COLUMNS = ["Job", "Function", "From", "To", "Input", "Planned now", "Measured"];

/** Time for drawing per frame; the remaining requesters are drawn in the next frames. */
const FRAME_MS = 12;
/** Interval between requests for the measured rates, which are updated by each heartbeat. */
const MEASURED_MS = 1000;
const SHOWN = 200;
/** The limit is drawn only if it is at most this multiple of the largest planned total rate. */
const MOST_ROOM = 8;
/** Factor by which an axis that is too short is lengthened. */
const LONGER = 1.5;
const HEIGHT = 130;
const LEFT = 86;
const TOP = 14;

export class EgressView {
  parts = new Set(["work", "hosts", "all"]);
  #isOpen = false;
  #flows = [];
  /** Measured rates in bits per second, by uuid of the job. */
  #measured = new Map();
  #poll;

  constructor(pool, open, report) {
    this.#poll = new Poll(() => this.#measure(), MEASURED_MS, report);
    this.pool = pool;
    this.open = open;
    this.charts = h("div", { class: "charts" });
    this.roving = new Roving(this.charts, "[role=button].flow");
    this.body = h("tbody");
    this.idle = h("p", { class: "empty" }, "No input is under way.");
    this.empty = h("p", { class: "empty" }, "No batch with planned rates yet.");
    this.element = h(
      "div",
      { class: "view" },
      panel("egress", "Egress of requesters", this.charts, this.empty),
      panel("flows", "Flows now", scrollingTable("Flows", COLUMNS, this.body), this.idle),
    );
  }

  enter() {
    this.#poll.start();
  }

  leave() {
    this.#poll.stop();
  }

  async #measure() {
    const { flows } = await get("/v1/flows");
    this.#measured = new Map(flows.map((flow) => [flow.job, flow.measured_bps]));
    this.move();
    this.#showFlows();
  }

  update() {
    const now = this.pool.now();
    const open = this.pool.followedBatches.filter((batch) => !isEnded(batch));
    const shown = open.length || !this.pool.shownBatch ? open : [this.pool.shownBatch];
    const flows = shown
      .flatMap((batch) => this.pool.jobsOf(batch.uuid))
      .filter((job) => job.dispatched_at && job.transfer?.length)
      .map((job) => ({ job, begin: seconds(job.dispatched_at) }));
    this.#isOpen = open.length > 0;
    this.empty.hidden = flows.length > 0;
    const zero = flows.reduce((least, { begin }) => Math.min(least, begin), Infinity);
    const planned = flows.reduce((most, { job, begin }) => Math.max(most, begin + job.transfer.at(-1).end_s - zero), 0);
    // If transfers take longer than planned, the axis is lengthened in steps.
    const steps = this.#isOpen ? Math.log((now - zero + 1) / planned) / Math.log(LONGER) : 0;
    const last = planned * LONGER ** Math.ceil(Math.max(0, steps));
    const limits = new Map(this.pool.hosts.map((host) => [host.name, host.egress_bps]));
    reconcile(
      this.charts,
      [...Map.groupBy(flows, ({ job }) => job.requester)].sort(([a], [b]) => byName(a, b)),
      ([name]) => name,
      ([name]) => makeChart(name),
      (figure, [name, ofRequester]) =>
        Object.assign(figure, { flows: ofRequester, scale: { zero, last, limit: limits.get(name) ?? null } }),
    );
    this.#showPlans();
    this.#flows = flows;
    this.#showFlows();
  }

  /** Draw the charts whose plan has changed, over several frames if there is much to draw. */
  #showPlans() {
    const end = performance.now() + FRAME_MS;
    const changed = [...this.charts.children].filter(hasChanged);
    while (changed.length && performance.now() < end) this.#showPlan(changed.shift());
    this.roving.settle();
    this.move();
    if (changed.length) requestAnimationFrame(() => this.#showPlans());
  }

  /** Show the flows under way with their rates. */
  #showFlows() {
    const now = this.pool.now();
    const sending = this.#flows
      .filter((flow) => flow.job.state === "WAITING_INPUT")
      .filter((flow) => rateAt(flow, now) > 0 || this.#measured.has(flow.job.uuid))
      .sort((a, b) => a.job.index - b.job.index);
    this.idle.hidden = sending.length > 0;
    reconcile(
      this.body,
      sending.slice(0, SHOWN),
      ({ job }) => job.uuid,
      ({ job }) => this.#makeRow(job),
      (row, { job, begin }) => {
        setText(row.children[3].firstChild, job.host);
        setText(row.children[5], rate(rateAt({ job, begin }, now)));
        setText(row.children[6], this.#measured.has(job.uuid) ? rate(this.#measured.get(job.uuid)) : "–");
      },
    );
  }

  /** Update the rates and the line of the current time, between two answers of the API. */
  move() {
    const now = this.pool.now();
    for (const figure of this.charts.children) {
      if (!figure.chart) continue;
      const total = figure.flows.reduce((sum, flow) => sum + rateAt(flow, now), 0);
      const rates = figure.flows.map(({ job }) => this.#measured.get(job.uuid)).filter((bps) => bps !== undefined);
      const measured = rates.length ? `, measured ${rate(rates.reduce((sum, bps) => sum + bps))}` : "";
      const planned = `${rate(total)} of ${rate(figure.scale.limit)}`;
      setText(figure.firstChild, `${figure.getAttribute("data-host")}: ${planned}${measured}`);
      const { svg, axis, bottom, zero } = figure.chart;
      svg.querySelector(".mark.now")?.remove();
      const line = axis.mark(this.#isOpen ? now - zero : null, "now", "now", 2, bottom);
      if (line) svg.append(line);
    }
  }

  /** Draw the planned rates of a requester's flows. */
  #showPlan(figure) {
    const { flows, scale } = figure;
    const open = (job) => this.open("job", `${job.batch_uuid}.${job.uuid}`);
    figure.drawn = planOf(figure);
    figure.chart = { zero: scale.zero, ...drawRates(flows, { ...scale, open }, figure.clientWidth || 480) };
    const { hasFocus } = this.roving;
    figure.lastChild.replaceChildren(figure.chart.svg);
    this.roving.settle(hasFocus);
  }

  /** Return a link to a host; it opens the host whose name it shows when it is clicked. */
  #hostLink(name) {
    const open = ({ currentTarget }) => this.open("host", currentTarget.textContent);
    return h("button", { type: "button", class: "plain link", on: { click: open } }, name);
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
      h("td", {}, job.requester.startsWith("server:") ? job.requester : this.#hostLink(job.requester)),
      h("td", {}, this.#hostLink(job.host)),
      h("td", {}, bytes(job.input_bytes)),
      h("td"),
      h("td"),
    );
  }
}

const makeChart = (name) =>
  h("figure", { "aria-label": `Egress of ${name}`, data: { host: name, row: name } }, h("figcaption"), h("div"));

/** Return what a requester's chart depends on, including its width, which varies with the number of charts. */
const planOf = ({ flows, scale: { zero, last, limit }, clientWidth }) => [
  zero,
  last,
  limit,
  clientWidth,
  ...flows.map(({ job }) => (job.plan ??= `${job.uuid} ${job.attempt} ${job.dispatched_at} ${job.start_s}`)),
];

function hasChanged(figure) {
  const plan = planOf(figure);
  return figure.drawn?.length !== plan.length || plan.some((part, place) => part !== figure.drawn[place]);
}

/** Return the planned rate of a job's input at a time, in bits per second. */
function rateAt({ job, begin }, at) {
  const elapsed = at - begin;
  return job.transfer.find((piece) => piece.begin_s <= elapsed && elapsed < piece.end_s)?.bps ?? 0;
}

/** Return the pieces of all flows, stacked: [{job, begin, end, below, bps}], in seconds since `zero`. */
function stacked(flows, zero) {
  const changes = flows.flatMap(({ job, begin: dispatched }) =>
    job.transfer.flatMap(({ begin_s: begin, end_s: end, bps }) => {
      const [from, until] = [begin, end].map((time) => rounded(dispatched - zero + time));
      if (from === until) return []; // its end would come before its begin
      return [
        { at: from, job, by: bps ?? 0 },
        { at: until, job, by: -(bps ?? 0) },
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

/** Round a time to whole milliseconds, so that rounding errors do not make consecutive flows overlap. */
const rounded = (at) => Math.round(1000 * at) / 1000;

function drawRates(flows, { zero, last, limit, open }, width) {
  const pieces = stacked(flows, zero);
  const axis = new Axis(0, last, LEFT, width - LEFT - 14);
  const peak = pieces.reduce((most, piece) => Math.max(most, piece.below + piece.bps), 1);
  // A limit far above all flows would make them too small to be seen.
  const line = limit !== null && limit <= MOST_ROOM * peak ? limit : null;
  const highest = 1.08 * Math.max(line ?? 0, peak);
  const bottom = HEIGHT - 24;
  const y = (bps) => bottom - ((bottom - TOP) * bps) / highest;
  const label = `${count(flows.length, "flow")}, limit ${rate(limit)}`;
  const svg = s(
    "svg",
    { width, height: HEIGHT, role: "group", "aria-label": label },
    axis.draw(TOP, bottom, bottom + 15),
  );
  for (const [job, ofJob] of Map.groupBy(pieces, (piece) => piece.job)) {
    const highestRate = rate(Math.max(...ofJob.map((piece) => piece.bps)));
    const text = `${jobName(job)}: ${job.function}, ${bytes(job.input_bytes)} to ${job.host}, at most ${highestRate}, ${duration(ofJob[0].begin)} to ${duration(ofJob.at(-1).end)}`;
    svg.append(
      markButton(
        "g",
        text,
        () => open(job),
        { class: `job flow ${functionColours.classOf(job.function)}`, "data-key": job.uuid },
        s("title", {}, text),
        s("path", { d: ofJob.map((piece) => boxOf(piece, axis, y)).join("") }),
      ),
    );
  }
  if (line !== null) svg.append(s("line", { class: "limit", x1: LEFT, x2: width - 14, y1: y(line), y2: y(line) }));
  svg.append(s("text", { class: "slot-name", x: LEFT - 8, y: y(line ?? peak) + 4 }, rate(line ?? peak)));
  return { svg, axis, bottom };
}

function boxOf({ begin, end, below, bps }, axis, y) {
  const [left, right, top, foot] = [axis.x(begin), axis.x(end), y(below + bps), y(below)].map((one) => one.toFixed(1));
  return `M${left} ${foot}V${top}H${right}V${foot}Z`;
}

/** The schedule view: planned and actual work of a batch on each slot, with its lower bound and planned end. */

import { Axis } from "./axis.js";
import { functionColours } from "./colours.js";
import { h, markButton, reconcile, s, setAttribute, setText } from "./dom.js";
import { byName, count, duration, jobName, partOf, seconds, shortId } from "./format.js";
import { isEnded, isEndedJob } from "./pool.js";
import { makespanOf } from "./queue_view.js";
import { Roving } from "./roving.js";

const LEFT = 150;
/** Heights of the labels above the rows: those of the axis, then those of the vertical lines. */
const LABELS = { axis: 11, now: 16, bound: 28, planned: 40 };
const TOP = 56;
/**
 * Offset and height, within a row, of planned transfers, actual transfers, the mark where an input is complete, planned
 * computations, and actual loads and computations.
 */
const ROW = 37;
const LANES = { transfer: [2, 3], moved: [6, 3], arrival: [1, 9], plan: [11, 8], actual: [20, 15] };
/** Number of slots per page. */
const ROWS = 40;
const MARKS = "[role=button]";
const ZOOMS = [1, 2, 4, 8];

export class ScheduleView {
  parts = new Set(["work", "slots", "all"]);
  #page = 0;
  #zoom = 0;
  #loads = new Map();
  #asking = false;
  /** While a mark is pressed, the chart is not redrawn: otherwise the click would be lost. */
  #pressed = false;
  #drawn = "";
  /** The moving parts of the picture; null if the batch has ended. */
  #live = null;

  constructor(pool, open, choose) {
    this.pool = pool;
    this.open = open;
    this.select = h("select", { on: { change: (event) => choose(event.target.value) } });
    this.title = h("p", { class: "note", "aria-live": "off" });
    this.chart = h("div", {
      class: "scroll chart",
      role: "region",
      "aria-label": "Chart of the schedule",
      on: { pointerdown: () => (this.#pressed = true) },
    });
    this.roving = new Roving(this.chart, MARKS);
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => (this.#pressed = false));
    this.legend = h("div", { class: "legend" });
    this.pager = this.#makePager();
    this.empty = h("p", { class: "empty" }, "No work has been planned yet.");
    this.element = h(
      "section",
      { class: "panel view", "aria-labelledby": "schedule-title" },
      h(
        "div",
        { class: "head" },
        h("h2", { id: "schedule-title" }, "Schedule"),
        h("label", {}, "Show ", this.select),
        this.#zoomButtons(),
      ),
      this.title,
      this.legend,
      this.chart,
      this.pager,
      this.empty,
    );
  }

  #zoomButtons() {
    const zoom = (by) => () => {
      this.#zoom = Math.min(Math.max(this.#zoom + by, 0), ZOOMS.length - 1);
      this.update();
    };
    return h(
      "div",
      { class: "buttons", role: "group", "aria-label": "Time scale" },
      h("button", { type: "button", "aria-label": "Zoom out", on: { click: zoom(-1) } }, "−"),
      h("button", { type: "button", "aria-label": "Zoom in", on: { click: zoom(1) } }, "+"),
    );
  }

  update() {
    const { batches, shownBatch: batch } = this.pool;
    reconcile(
      this.select,
      batches,
      (one) => one.uuid,
      (one) => h("option", { value: one.uuid }),
      (option, one) =>
        setText(option, [one.name || shortId(one.uuid), one.state.toLowerCase(), partsOf(one)].join(" · ")),
    );
    if (batch) this.select.value = batch.uuid;
    const jobs = batch ? this.pool.jobsOf(batch.uuid).filter((job) => job.dispatched_at) : [];
    this.empty.hidden = jobs.length > 0;
    this.chart.hidden = this.legend.hidden = !jobs.length;
    setText(this.title, batch ? describe(batch, this.pool) : "");
    if (!jobs.length) {
      this.#drawn = "";
      this.#live = null;
      this.chart.replaceChildren();
      return;
    }
    const names = [...new Set(jobs.map((job) => job.slot).filter(Boolean))].sort(byName);
    this.#showPager(names.length);
    const shown = names.slice(this.#page * ROWS, (this.#page + 1) * ROWS);
    this.#askLoads(new Set(shown));
    const loads = shown.reduce((sum, name) => sum + (this.#loads.get(name)?.length ?? 0), 0);
    const slots = shown.filter((name) => this.pool.slotNamed(name)).length;
    const ended = isEnded(batch) && jobs.every(isEndedJob) ? "ended" : this.pool.answers;
    const view = [this.#page, this.#zoom, this.chart.clientWidth];
    const stamp = [batch.uuid, ...view, loads, slots, jobs.length, ended].join(" ");
    if (stamp === this.#drawn || this.#pressed) return;
    this.#drawn = stamp;
    this.#draw(batch, jobs, shown);
  }

  /** Between two answers of the API, move the line of the current time, and lengthen the bars of running jobs. */
  move() {
    if (!this.#live) return;
    const { axis, zero, svg, bottom, running } = this.#live;
    const now = this.pool.now() - zero;
    if (now > axis.end) {
      this.#drawn = "";
      this.update();
      return;
    }
    for (const bar of running) bar.setAttribute("width", widthOf(axis, bar.begin, now));
    svg.querySelector(".mark.now")?.remove();
    const line = axis.mark(now, "now", "now", LABELS.now, bottom);
    if (line) svg.append(line);
  }

  /** Get the loads from the histories of the slots, by one request for each slot with new loads. */
  async #askLoads(names) {
    if (this.#asking) return;
    this.#asking = true;
    try {
      this.#loads = await this.pool.loadsOf(names);
    } catch {
      // The poll of the slots reports the failure; the loads are drawn when a later request succeeds.
    } finally {
      this.#asking = false;
    }
  }

  #makePager() {
    const turn = (by) => () => {
      this.#page += by; // `update` keeps it among those that there are
      this.update();
    };
    return h(
      "div",
      { class: "pager" },
      h("button", { type: "button", on: { click: turn(-1) } }, "Previous slots"),
      h("span"),
      h("button", { type: "button", on: { click: turn(1) } }, "Next slots"),
    );
  }

  #showPager(rows) {
    const last = Math.max(Math.ceil(rows / ROWS) - 1, 0);
    this.#page = Math.min(Math.max(this.#page, 0), last);
    const [previous, place, next] = this.pager.children;
    this.pager.hidden = last === 0;
    previous.disabled = this.#page === 0;
    next.disabled = this.#page === last;
    setText(place, `${this.#page + 1} of ${last + 1}`);
  }

  #draw(batch, jobs, names) {
    const zero = Math.min(...jobs.map((job) => seconds(job.dispatched_at)));
    const now = this.pool.now() - zero;
    const planned = makespanOf(batch, this.pool.now());
    const ends = jobs.flatMap((job) => [
      seconds(job.staged_at) - zero,
      seconds(job.finished_at) - zero,
      seconds(job.dispatched_at) - zero + (job.end_s ?? 0),
    ]);
    const last = Math.max(
      ...ends,
      planned?.planned ?? 0,
      isEnded(batch) ? 0 : Math.min(now, 3 * Math.max(...ends)),
      0.1,
    );
    const begin = Math.min(0, ...this.#loadsBefore(names, zero, last));
    const width = Math.max(560, this.chart.clientWidth - 4) * ZOOMS[this.#zoom];
    const bottom = TOP + ROW * names.length;
    const axis = new Axis(begin, begin + (last - begin) * 1.04, LEFT, width - LEFT - 16);
    const svg = s(
      "svg",
      { width, height: bottom + 2, class: "gantt", role: "group", "aria-label": `Schedule of ${names.length} slots` },
      HATCH(),
      axis.draw(TOP, bottom, LABELS.axis),
    );
    const bySlot = Map.groupBy(jobs, (job) => job.slot);
    names.forEach((name, number) => {
      const y = TOP + ROW * number;
      const row = this.#drawRow(axis, name, y, width, zero, bySlot.get(name));
      row.append(...inTime(bySlot.get(name)).map((job) => this.#drawJob(axis, job, y, zero, now)));
      svg.append(row);
    });
    for (const line of [
      axis.mark(batch.lower_bound_s, "bound", "lower bound", LABELS.bound, bottom),
      axis.mark(batch.planned_makespan_s, "planned", "planned end", LABELS.planned, bottom),
    ])
      if (line) svg.append(line);
    const running = [...svg.querySelectorAll(".running")];
    this.#live = isEnded(batch) ? null : { axis, zero, svg, bottom, running };
    const { hasFocus } = this.roving;
    this.chart.replaceChildren(svg);
    this.move();
    this.roving.settle(hasFocus);
    this.#showLegend(jobs);
  }

  #loadsBefore(names, zero, last) {
    const begins = names.flatMap((name) => (this.#loads.get(name) ?? []).map((load) => load.begin - zero));
    return begins.filter((begin) => begin < 0 && begin > -0.2 * last);
  }

  /** Return the row of a slot with its loads; the caller appends its jobs. */
  #drawRow(axis, name, y, width, zero, jobs) {
    const slot = this.pool.slotNamed(name);
    const open = () => this.open("slot", slot.uuid);
    const place = { x: LEFT - 10, y: y + ROW / 2 + 4 };
    const row = s(
      "g",
      { role: "group", "aria-label": name, "data-row": name },
      s("line", { class: "row", x1: 0, x2: width, y1: y, y2: y }),
      slot
        ? markButton("text", name, open, { class: "slot-name opener", "data-key": name, ...place }, name)
        : s("text", { class: "slot-name", ...place }, name),
    );
    const loads = this.#loads.get(name) ?? [];
    for (const [place, load] of loads.entries()) {
      const [from, until] = [load.begin - zero, (load.end ?? this.pool.now()) - zero];
      if (until < axis.begin || from > axis.end) continue;
      const text = `load of ${functionOf(load, loads[place + 1], jobs)} into ${name}, ${duration(until - from)}`;
      const mark = bar(axis, y, LANES.actual, from, until, { class: "load" }, text);
      row.append(markButton("g", text, open, { class: "opener", "data-key": `${name} ${load.begin}` }, mark));
    }
    return row;
  }

  #drawJob(axis, job, y, zero, now) {
    const late = seconds(job.dispatched_at) - zero; // a job that was planned again has a time 0 of its own
    const group = markButton("g", describeJob(job), () => this.open("job", `${job.batch_uuid}.${job.uuid}`), {
      class: `job ${functionColours.classOf(job.function)}`,
      "data-key": job.uuid,
      "data-state": job.state,
    });
    group.append(s("title", {}, describeJob(job)));
    for (const piece of job.transfer ?? []) {
      group.append(bar(axis, y, LANES.transfer, late + piece.begin_s, late + piece.end_s, { class: "transfer" }));
    }
    const arrival = seconds(job.staged_at) - zero;
    if (job.transfer_began_at) {
      const began = seconds(job.transfer_began_at) - zero;
      group.append(bar(axis, y, LANES.moved, began, arrival, { class: "moved" }));
    }
    if (arrival >= axis.begin) {
      group.append(bar(axis, y, LANES.arrival, arrival, arrival, { class: "arrival", width: 2 }));
    }
    if (job.start_s !== null && job.end_s !== null) {
      group.append(bar(axis, y, LANES.plan, late + job.start_s, late + job.end_s, { class: "plan" }));
    }
    const start = seconds(job.started_at);
    if (start !== null) {
      const end = seconds(job.finished_at);
      const until = end === null ? (isEndedJob(job) ? start - zero : now) : end - zero;
      const look = end === null ? "actual running" : isLate(job) ? "actual late" : "actual";
      group.append(bar(axis, y, LANES.actual, start - zero, until, { class: look }));
      const room = axis.x(until) - axis.x(start - zero);
      const text = job.name || job.function;
      if (room > 7 * Math.min(text.length, 6)) {
        const length = Math.floor(room / 7);
        const short = text.length > length ? `${text.slice(0, length - 1)}…` : text;
        group.append(s("text", { x: axis.x(start - zero) + 4, y: y + 32 }, short));
      }
    }
    return group;
  }

  #showLegend(jobs) {
    const functions = [...new Set(jobs.map((job) => job.function))].sort();
    const lanes = [
      ["transfer", "planned transfer"],
      ["moved", "actual transfer"],
      ["arrival", "input complete"],
      ["plan", "planned computation"],
      ["actual", "actual computation"],
      ["load", "load"],
      ["late", "later than planned"],
    ];
    const items = [
      ...functions.map((name) => ({ key: `f ${name}`, text: name, look: `swatch ${functionColours.classOf(name)}` })),
      ...lanes.map(([look, text]) => ({ key: look, text, look: `lane ${look}` })),
    ];
    reconcile(
      this.legend,
      items,
      (item) => item.key,
      (item) =>
        h(
          "span",
          { class: "key" },
          h("span", { class: item.look, data: { state: "BUSY" }, "aria-hidden": "true" }),
          h("span", {}, item.text),
        ),
      (key, item) => setAttribute(key.firstChild, "class", item.look),
    );
  }
}

const HATCH = () =>
  s(
    "defs",
    {},
    s(
      "pattern",
      { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }),
    ),
  );

function bar(axis, rowY, [offset, height], begin, end, properties, title) {
  const x = axis.x(begin);
  const mark = s("rect", {
    x: x.toFixed(1),
    y: rowY + offset,
    height,
    rx: Math.min(2, height / 2),
    width: widthOf(axis, begin, end),
    ...properties,
  });
  mark.begin = begin;
  if (title) mark.append(s("title", {}, title));
  return mark;
}

const widthOf = (axis, begin, end) => Math.max(axis.x(end) - axis.x(begin), 1).toFixed(1);

/** Return the function of a load; if the slot does not name it, that of a job between this load and the next. */
function functionOf(load, next, jobs) {
  const [from, until] = [load.end ?? Infinity, next?.begin ?? Infinity];
  const isBetween = (job) => seconds(job.started_at) >= from && seconds(job.started_at) < until;
  return load.function || jobs.find(isBetween)?.function || "a function";
}

function describeJob(job) {
  const planned = job.start_s === null ? "not planned" : `planned ${duration(job.start_s)} to ${duration(job.end_s)}`;
  const since = (at) => duration(seconds(at) - seconds(job.dispatched_at));
  const began = job.transfer_began_at;
  const input = began ? `input transferred ${since(began)} to` : "input complete at";
  const staged = job.staged_at ? `, ${input} ${since(job.staged_at)}` : "";
  const took = job.compute_s ? `, computed ${duration(job.compute_s)}` : "";
  const place = job.slot || "no slot";
  const late = isLate(job) ? ", later than planned" : "";
  return `${jobName(job)}: ${job.function} on ${place}, ${job.state.toLowerCase()}, ${planned}${staged}${took}${late}`;
}

/** Return whether a job ended clearly later than planned. */
const isLate = (job) =>
  Boolean(job.finished_at && job.end_s !== null) &&
  seconds(job.finished_at) - seconds(job.dispatched_at) > job.end_s + 0.5;

/** Return jobs in the order of their starts: the actual start if known, else the planned one. */
function inTime(jobs) {
  const begin = (job) => seconds(job.started_at) ?? seconds(job.dispatched_at) + (job.start_s ?? 0);
  return jobs.toSorted((a, b) => begin(a) - begin(b));
}

const partsOf = (batch) => count(batch.jobs, partOf(batch.policy));

function describe(batch, pool) {
  const times = makespanOf(batch, pool.now());
  const words = [
    partOf(batch.policy) === "job" ? `policy ${batch.policy}` : batch.policy,
    batch.state.toLowerCase(),
    `${batch.jobs_completed} of ${partsOf(batch)} completed`,
  ];
  if (batch.planned_makespan_s !== null) {
    words.push(
      `planned makespan ${duration(batch.planned_makespan_s)}`,
      `lower bound ${duration(batch.lower_bound_s)}`,
    );
  }
  if (times)
    words.push(
      isEnded(batch) ? `results back after ${duration(times.passed)}` : `${duration(times.passed)} since time 0`,
    );
  return words.join(" · ");
}

/** The usage of projects in a period, by function; a row links to the jobs that ran the function. */

import { getAll, withQuery } from "./api.js";
import { functionColours } from "./colours.js";
import { h, panel, reconcile, scrollingTable, setAttribute, setText } from "./dom.js";
import { bytes, duration } from "./format.js";
import { Poll } from "./poll.js";
import { makeBar, showBar } from "./progress.js";

const TIMES = ["Time on slots", "Time on CPUs", "Slots of instances", "Share of all"];
const COLUMNS = ["Project", "Function", "Jobs", ...TIMES, "Read", "Written", "Loads"];
const PERIODS = { "last hour": 1 / 24, "last day": 1, "last 7 days": 7, "last 31 days": 31 };
/** Label of the usage of slots that instances load themselves. */
const NO_FUNCTION = "loaded by instances";
const EVERY_MS = 10_000;

export class UsageView {
  parts = new Set(["all"]);
  #rows = [];
  #days = 1;
  /** Projects to request: all, which needs an admin; null = the caller's own, after that was refused. */
  #whose = "all";
  #poll;

  constructor(pool, open, report) {
    this.pool = pool;
    this.open = open;
    this.body = h("tbody");
    this.charts = h("div", { class: "usages" });
    this.empty = h("p", { class: "empty" }, "No job has computed to its end in this period.");
    const periods = h(
      "select",
      { on: { change: (event) => this.#choose(Number(event.target.value)) } },
      ...Object.entries(PERIODS).map(([text, days]) => h("option", { value: days, selected: days === 1 }, text)),
    );
    this.element = h(
      "div",
      { class: "view" },
      h(
        "section",
        { class: "panel", "aria-labelledby": "usage-title" },
        h(
          "div",
          { class: "head" },
          h("h2", { id: "usage-title" }, "Usage of projects"),
          h("label", {}, "Period ", periods),
        ),
        this.charts,
        this.empty,
      ),
      panel("rows", "By function", scrollingTable("Usage", COLUMNS, this.body)),
    );
    this.#poll = new Poll(() => this.#ask(), EVERY_MS, report);
    pool.addEventListener("change", ({ detail }) => detail === "all" && this.#forget());
  }

  /** Poll only while the view is shown: the API adds up each answer from all runs of the period. */
  enter() {
    this.#poll.start();
  }

  leave() {
    this.#poll.stop();
  }

  /** Discard the rows, which belong to another caller. */
  #forget() {
    this.#rows = [];
    this.#whose = "all";
    this.#poll.now();
  }

  #choose(days) {
    this.#days = days;
    this.#poll.now();
  }

  async #ask() {
    const end = this.pool.now();
    const period = [end - 86_400 * this.#days, end].map((at) => new Date(1000 * at).toISOString());
    const ask = () =>
      getAll(withQuery("/v1/usage", { project_id: this.#whose, start: period[0], end: period[1] }), "usage");
    try {
      this.#rows = await ask();
    } catch (error) {
      if (error.status !== 403 || !this.#whose) throw error;
      this.#whose = null;
      this.#rows = await ask();
    }
    this.update();
  }

  update() {
    const rows = this.#rows;
    this.empty.hidden = rows.length > 0;
    const all = rows.reduce((sum, row) => sum + timeOf(row), 0) || 1;
    const projects = [...Map.groupBy(rows, (row) => row.project_id)].map(([name, ofProject]) => ({
      name,
      rows: ofProject.toSorted((a, b) => timeOf(b) - timeOf(a)),
      time: ofProject.reduce((sum, row) => sum + timeOf(row), 0),
    }));
    projects.sort((a, b) => b.time - a.time);
    const most = Math.max(...projects.map((project) => project.time), 1e-9);
    reconcile(
      this.charts,
      projects,
      ({ name }) => name,
      ({ name }) =>
        h("div", { class: "usage" }, h("span", { class: "name" }, name), h("span", { class: "stack" }), h("b")),
      (element, { rows: ofProject, time }) => {
        setText(element.lastChild, duration(time));
        this.#showStack(element.children[1], ofProject, most);
      },
    );
    reconcile(
      this.body,
      projects.flatMap((project) => project.rows),
      (row) => `${row.project_id} ${row.function}`,
      (row) => this.#makeRow(row),
      (element, row) => {
        const times = [row.slot_s, row.cpu_s, row.instance_slot_s];
        const texts = [row.jobs.toLocaleString(), ...times.map(duration)];
        texts.forEach((text, place) => setText(element.children[place + 2], text));
        const share = timeOf(row) / all;
        showBar(element.children[6].firstChild, share, `${Math.round(100 * share)} % of the time of all`);
        setText(element.children[7], bytes(row.input_bytes));
        setText(element.children[8], bytes(row.result_bytes));
        setText(element.children[9], row.loads.toLocaleString());
      },
    );
  }

  #showStack(stack, rows, most) {
    reconcile(
      stack,
      rows,
      (row) => row.function,
      (row) => this.#opener(row, { class: `part ${functionColours.classOf(row.function)}` }),
      (part, row) => {
        const text = `${row.function || NO_FUNCTION} of ${row.project_id}: ${duration(timeOf(row))}`;
        part.style.width = `${(100 * timeOf(row)) / most}%`;
        part.title = text;
        setAttribute(part, "aria-label", text);
      },
    );
  }

  #opener({ project_id: project, function: name }, properties, ...children) {
    if (!name) return h("span", { role: "img", ...properties }); // no job computed it
    const open = () => this.open("usage", `${project}/${name}`);
    return h("button", { type: "button", ...properties, on: { click: open } }, ...children);
  }

  #makeRow(row) {
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, row.project_id),
      h(
        "td",
        {},
        h(
          "span",
          { class: `swatch-text ${functionColours.classOf(row.function)}` },
          row.function ? this.#opener(row, { class: "plain link" }, row.function) : NO_FUNCTION,
        ),
      ),
      ...[0, 1, 2, 3].map(() => h("td")),
      h("td", {}, makeBar()),
      ...[0, 1, 2].map(() => h("td")),
    );
  }
}

const timeOf = (row) => row.slot_s + row.cpu_s + row.instance_slot_s;

/** The queue: all work of one or all projects, newest first, with state, reasons, progress, and makespan against bound. */

import { h, reconcile, scrollingTable, setText } from "./dom.js";
import { count, duration, moment, partOf, seconds, shortId, waiting } from "./format.js";
import { isEnded, isEndedJob, KINDS } from "./pool.js";
import { makeBadge, makeBar, makeBullet, showBadge, showBar, showBullet } from "./progress.js";
import { session } from "./session.js";

const COLUMNS = ["Kind", "Name", "State", "Progress", "Reason or expected start", "Makespan", "Created"];

const EMPTY = "No work yet: submit a batch with fpga-pool batch create.";
const FORBIDDEN = "Your token does not allow to list work: it must be of a project, with the role reader.";

export class QueueView {
  parts = new Set(["work", "all"]);
  #kind = "";

  constructor(pool, open, close) {
    Object.assign(this, { pool, open, close });
    this.body = h("tbody");
    this.empty = h("p", { class: "empty" });
    const kinds = h(
      "select",
      { on: { change: (event) => this.#choose(event.target.value) } },
      h("option", { value: "" }, "all kinds"),
      ...Object.entries(KINDS).map(([kind, { many }]) => h("option", { value: kind }, many)),
    );
    this.everyone = h("input", { type: "checkbox", on: { change: () => this.#chooseProjects() } });
    this.projects = h("label", {}, this.everyone, " All projects");
    const title = h("h2", { id: "queue-title" }, "Queue");
    this.element = h(
      "section",
      { class: "panel view", "aria-labelledby": "queue-title" },
      h("div", { class: "head" }, title, this.projects, h("label", {}, "Show ", kinds)),
      scrollingTable("Work of the project", COLUMNS, this.body),
      this.empty,
    );
  }

  #choose(kind) {
    this.#kind = kind;
    this.update();
  }

  #chooseProjects() {
    session.everyone = this.everyone.checked;
    // The object in detail may belong to a project that is no longer shown.
    this.close();
    this.pool.forget();
    this.pool.refresh();
  }

  update() {
    // Callers who may not list slots are tenants, and may not see other projects.
    this.projects.hidden = this.pool.forbidden.has("slots");
    const rows = Object.keys(KINDS)
      .filter((kind) => !this.#kind || kind === this.#kind)
      .flatMap((kind) => this.pool.work[kind].map((work) => ({ kind, work })))
      .sort((a, b) => Date.parse(b.work.created_at) - Date.parse(a.work.created_at));
    this.empty.hidden = rows.length > 0;
    setText(this.empty, this.pool.forbidden.has("work") ? FORBIDDEN : EMPTY);
    reconcile(
      this.body,
      rows,
      ({ kind, work }) => `${kind} ${work.uuid}`,
      (row) => this.#makeRow(row),
      (element, row) => this.#updateRow(element, row),
    );
  }

  #makeRow({ kind, work }) {
    const name = h("button", { type: "button", class: "plain link", on: { click: () => this.open(kind, work.uuid) } });
    const cells = [
      h("td", {}, kind),
      h("th", { scope: "row" }, name, h("span", { class: "note" })),
      h("td", {}, makeBadge()),
      h("td", { class: "progress" }, makeBar(), h("span", { class: "note" })),
      h("td", { class: "reason" }),
      h("td", {}, makeBullet(), h("span", { class: "note" })),
      h("td", {}, moment(work.created_at)),
    ];
    return h("tr", {}, ...cells);
  }

  #updateRow(row, { kind, work }) {
    const [, name, state, progress, reason, makespan] = row.children;
    setText(name.firstChild, work.name || shortId(work.uuid));
    setText(name.lastChild, session.everyone ? ` ${work.project_id}` : "");
    showBadge(state.firstChild, work.state);
    const done = this.#progress(kind, work);
    showBar(progress.firstChild, done.share, done.text);
    setText(progress.lastChild, done.text);
    setText(reason, this.#reason(kind, work));
    const times = makespanOf(work, this.pool.now());
    makespan.firstChild.toggleAttribute("hidden", !times);
    setText(makespan.lastChild, times ? shortMakespan(times) : "");
    if (times) showBullet(makespan.firstChild, times);
  }

  #progress(kind, work) {
    if (kind === "batch" || kind === "pipeline") {
      const ended = work.jobs_completed + work.jobs_failed + work.jobs_cancelled;
      const running = this.pool.jobsOf(work.uuid).filter((job) => job.state === "RUNNING").length;
      const words = [`${ended} of ${count(work.jobs, partOf(kind))}`];
      if (running) words.push(`${running} running`);
      if (work.jobs_failed) words.push(`${work.jobs_failed} failed`);
      return { share: ended / work.jobs, text: words.join(", ") };
    }
    if (kind === "gang") {
      const done = isEnded(work) ? work.runtime_s : (this.pool.details.get(work.uuid)?.done_s ?? 0);
      const share = work.state === "COMPLETED" ? 1 : Math.min(done / work.runtime_s, 0.99);
      return { share, text: `${count(work.processes, "process", "processes")}, estimate ${duration(work.runtime_s)}` };
    }
    const shares = this.pool.details.get(work.uuid)?.share_list ?? [];
    const ended = isEnded(work) ? work.shares : shares.filter(isEndedJob).length;
    return {
      share: ended / work.shares,
      text: `${count(work.slots, "slot")}, ${ended} of ${count(work.shares, "share")}`,
    };
  }

  #reason(kind, work) {
    if (work.cancel_requested && !isEnded(work)) return "cancel requested";
    const detail = this.pool.details.get(work.uuid);
    const reason = detail?.pending_reason || work.reason || this.#reasonOfJobs(work);
    return waiting(reason, detail?.expected_at, this.pool.now());
  }

  #reasonOfJobs(work) {
    const isWaiting = (job) => job.reason && !["COMPLETED", "RUNNING"].includes(job.state);
    return this.pool.jobsOf(work.uuid).find(isWaiting)?.reason;
  }
}

/** Return the elapsed, planned and least time of a batch, in seconds since its time 0; null before it is planned. */
export function makespanOf(batch, now) {
  if (!batch.dispatched_at) return null;
  const promised = batch.planned_completion_s === null || batch.planned_completion_s === undefined;
  const planned = promised ? batch.planned_makespan_s : batch.planned_completion_s;
  const bound = promised ? batch.lower_bound_s : batch.completion_bound_s;
  if (planned === null || planned === undefined) return null;
  const end = seconds(batch.ended_at) ?? now;
  return { passed: Math.max(end - seconds(batch.dispatched_at), 0), planned, bound: bound ?? null };
}

const shortMakespan = ({ passed, planned, bound }) =>
  `${duration(passed)}, planned ${duration(planned)}, bound ${duration(bound)}`;

/** The page's knowledge of the pool: the answers of the API, kept up to date by polling. */

import { changesOf, get, getAll, withQuery } from "./api.js";
import { functionColours } from "./colours.js";
import { byName, seconds } from "./format.js";
import { Poll } from "./poll.js";

const FAST_MS = 1000;
const SLOW_MS = 10_000;
const LISTED = 100;
/**
 * Number of active batches whose jobs are followed. Details are followed for up to four times as many objects of each
 * kind: gangs and tasks that have not ended, and batches and pipelines with waiting jobs.
 */
const FOLLOWED = 8;

/** The kinds of work, with their paths and plural names in the API. */
export const KINDS = {
  batch: { path: "/v1/batches", many: "batches" },
  pipeline: { path: "/v1/pipelines", many: "pipelines" },
  task: { path: "/v1/tasks", many: "tasks" },
  gang: { path: "/v1/gangs", many: "gangs" },
};
const ENDED = new Set(["COMPLETED", "FAILED", "CANCELLED"]);
export const isEnded = (work) => ENDED.has(work.state);
const ENDED_JOBS = new Set([...ENDED, "RESULT_HELD"]);
export const isEndedJob = (job) => ENDED_JOBS.has(job.state);

/** The jobs of one batch; each refresh requests only the jobs that changed after the previous answer. */
class JobList {
  jobs = [];
  #seen = null;
  #path;

  constructor(batch) {
    this.#path = `/v1/batches/${batch}/jobs`;
  }

  async refresh() {
    const answer = await get(withQuery(this.#path, { changed_after: this.#seen }));
    for (const job of answer.jobs) this.jobs[job.index] = job;
    this.#seen = answer.seen;
    return Date.parse(answer.at) / 1000;
  }
}

/** A list of named objects; an object that has not changed remains the same JavaScript object. */
class NamedList {
  /** All objects, ordered by name; null = not known. */
  all = null;
  #named = new Map();

  constructor(path, key) {
    Object.assign(this, { path, key });
  }

  named(name) {
    return this.#named.get(name);
  }

  forget() {
    this.all = null;
    this.#named = new Map();
  }

  async refresh() {
    const known = this.#named;
    const { changed, names } = await changesOf(this.path, this.key, known.size === 0);
    if (known !== this.#named) return; // they were another caller's
    if (this.all && !changed.length && !names) return;
    for (const one of changed) known.set(one.name, one);
    if (names) this.#named = new Map(names.map((name) => [name, known.get(name)]));
    this.all = [...this.#named.values()];
  }
}

/** Emits "change" after each answer that may have changed what is shown; `detail` names the part. */
export class Pool extends EventTarget {
  hosts = [];
  functions = [];
  /** The newest objects of each kind, newest first. */
  work = { batch: [], pipeline: [], task: [], gang: [] };
  /** Details by uuid: of gangs and tasks that have not ended, and of batches and pipelines with waiting jobs. */
  details = new Map();
  /** Seconds by which the clock of the pool is ahead of the clock of this machine. */
  aheadSeconds = 0;
  /** Names of the parts that the caller may not see. */
  forbidden = new Set();
  /** Number of answers about work so far. */
  answers = 0;
  /** Batches, pipelines, and the batches of the shares of tasks, newest first. */
  batches = [];
  #slots = new NamedList("/v1/slots", "slots");
  #processors = new NamedList("/v1/processors", "processors");
  #jobs = new Map();
  #loads = new Map();
  #started = false;
  /** uuid of the batch whose schedule the user wants to see; "" = none in particular. */
  chosenBatch = "";

  constructor(report) {
    super();
    /** In the order in which they start. Functions are first: their colours depend on the names of all of them. */
    this.polls = [
      new Poll(() => this.#part("functions", () => this.#refreshFunctions()), SLOW_MS, report),
      new Poll(() => this.#part("slots", () => this.#slots.refresh()), FAST_MS, report),
      new Poll(() => this.#part("processors", () => this.#processors.refresh()), FAST_MS, report),
      new Poll(() => this.#part("hosts", () => this.#refreshHosts()), 3 * FAST_MS, report),
      new Poll(() => this.#part("work", () => this.#refreshWork()), FAST_MS, report),
    ];
  }

  async start() {
    const [first, ...others] = this.polls;
    this.#started = true;
    await first.start();
    if (this.#started) for (const poll of others) poll.start();
  }

  stop() {
    this.#started = false;
    for (const poll of this.polls) poll.stop();
  }

  /** Refresh everything at once, after an action of an operator or a change of the project. */
  refresh() {
    for (const poll of this.polls) poll.now();
  }

  /** Forget all objects, because the project or the caller has changed. */
  forget() {
    this.work = { batch: [], pipeline: [], task: [], gang: [] };
    this.batches = [];
    this.#slots.forget();
    this.#processors.forget();
    this.details.clear();
    this.forbidden.clear();
    this.#jobs.clear();
    this.#loads.clear();
    this.#changed("all");
  }

  /** Return the jobs of a batch as far as they are known. */
  jobsOf(batch) {
    return this.#jobs.get(batch)?.jobs.filter(Boolean) ?? [];
  }

  /** All slots, ordered by name. */
  get slots() {
    return this.#slots.all ?? [];
  }

  /** The processors that hosts reserve for gangs, ordered by name; null = not known. */
  get processors() {
    return this.#processors.all;
  }

  /** Return a slot by its name, if the caller may see it. */
  slotNamed(name) {
    return this.#slots.named(name);
  }

  /** Return the batch whose schedule is shown: the chosen one, else the newest that has not ended, else the newest. */
  get shownBatch() {
    const { batches } = this;
    return batches.find((one) => one.uuid === this.chosenBatch) ?? batches.find((one) => !isEnded(one)) ?? batches[0];
  }

  /** Return the batches whose jobs are followed: those that have not ended, oldest first, and the shown one. */
  get followedBatches() {
    const { shownBatch: shown } = this;
    const open = this.batches
      .filter((one) => !isEnded(one))
      .slice(-FOLLOWED)
      .reverse();
    return shown && !open.includes(shown) ? [shown, ...open] : open;
  }

  /** Return a job by its uuid; null if it is not known. */
  jobNamed(uuid) {
    for (const list of this.#jobs.values()) {
      const job = list.jobs.find((one) => one?.uuid === uuid);
      if (job) return job;
    }
    return null;
  }

  /** Return the loads of slots, by slot name: [{function, begin, end}]; end is null for a load in progress. */
  async loadsOf(names) {
    if (this.forbidden.has("slots")) return new Map();
    const wanted = [...names].map((name) => this.slotNamed(name)).filter(Boolean);
    await Promise.all(
      wanted.map(async (slot) => {
        const stamp = `${slot.reconfigurations} ${slot.state === "LOADING"} ${slot.loaded_at}`;
        if (this.#loads.get(slot.name)?.stamp === stamp) return;
        const { slot: shown } = await get(`/v1/slots/${slot.uuid}`);
        const before = this.#loads.get(slot.name)?.loads ?? [];
        this.#loads.set(slot.name, { stamp, loads: mergedLoads(before, loadsIn(shown)) });
      }),
    );
    return new Map([...names].map((name) => [name, this.#loads.get(name)?.loads ?? []]));
  }

  /** Return the time of the pool in seconds since the epoch. */
  now() {
    return Date.now() / 1000 + this.aheadSeconds;
  }

  /** Refresh a part; return whether the caller may see it. */
  async #part(name, refresh) {
    try {
      await refresh();
      this.forbidden.delete(name);
    } catch (error) {
      if (error.status !== 403) throw error;
      this.forbidden.add(name);
    }
    this.#changed(name);
    return !this.forbidden.has(name);
  }

  #changed(part) {
    this.dispatchEvent(new CustomEvent("change", { detail: part }));
  }

  async #refreshHosts() {
    this.hosts = (await getAll("/v1/hosts", "hosts")).sort((a, b) => byName(a.name, b.name));
  }

  async #refreshFunctions() {
    this.functions = (await get("/v1/functions")).functions;
    functionColours.reserve(this.functions.map((one) => one.name));
  }

  async #refreshWork() {
    const kinds = Object.entries(KINDS);
    const known = this.work;
    const answers = await Promise.all(kinds.map(([, kind]) => get(withQuery(kind.path, { limit: LISTED }))));
    if (known !== this.work) return; // it was that of another caller or project
    kinds.forEach(([name, kind], number) => {
      this.work[name] = answers[number][kind.many];
    });
    const pipelines = new Set(this.work.pipeline.map((one) => one.uuid));
    const tasks = new Set(this.work.task.map((one) => one.uuid));
    // A pipeline, or the shares of a task, is also a batch, and must be listed only once.
    const shares = this.work.batch.filter((one) => tasks.has(one.uuid));
    this.work.batch = this.work.batch.filter((one) => !pipelines.has(one.uuid) && !tasks.has(one.uuid));
    this.batches = [...this.work.batch, ...this.work.pipeline, ...shares].sort(
      (a, b) => Date.parse(b.created_at) - Date.parse(a.created_at),
    );
    this.answers += 1;
    await all([...this.#refreshedJobs(), ...this.#refreshedDetails()]);
  }

  #refreshedJobs() {
    const followed = new Set(this.followedBatches);
    const changing = this.batches.filter((batch) => {
      if (!isEnded(batch)) return followed.has(batch);
      const jobs = this.jobsOf(batch.uuid);
      // Continue with a batch that was followed until all of its jobs are known to have ended.
      return (followed.has(batch) || jobs.length > 0) && !(jobs.length === batch.jobs && jobs.every(isEndedJob));
    });
    return changing.map(async ({ uuid }) => {
      if (!this.#jobs.has(uuid)) this.#jobs.set(uuid, new JobList(uuid));
      this.aheadSeconds = (await this.#jobs.get(uuid).refresh()) - Date.now() / 1000;
    });
  }

  /** Return whether jobs of a batch wait for a place, as far as its jobs are known. */
  #waits(batch) {
    if (isEnded(batch)) return false;
    return batch.state === "PENDING" || this.jobsOf(batch.uuid).some((job) => job.state === "PENDING");
  }

  #refreshedDetails() {
    const open = Object.keys(KINDS).flatMap((kind) =>
      this.work[kind]
        .filter((one) => (kind === "batch" || kind === "pipeline" ? this.#waits(one) : !isEnded(one)))
        .slice(-4 * FOLLOWED)
        .map((one) => [kind, one.uuid]),
    );
    const wanted = new Set(open.map(([, uuid]) => uuid));
    for (const uuid of this.details.keys()) if (!wanted.has(uuid)) this.details.delete(uuid);
    return open.map(async ([kind, uuid]) => {
      this.details.set(uuid, (await get(`${KINDS[kind].path}/${uuid}`))[kind]);
    });
  }
}

/** Wait until all promises are settled; then throw the reason of the first rejected one, if any. */
export async function all(promises) {
  const failed = (await Promise.allSettled(promises)).find((one) => one.status === "rejected");
  if (failed) throw failed.reason;
}

/** Return the loads in the history of a slot. Only the function of the last load is known; "" = not known. */
function loadsIn({ history, function: name }) {
  const loads = [];
  const last = history.findLastIndex((entry) => entry.after === "LOADING");
  history.forEach((entry, place) => {
    if (entry.after !== "LOADING") return;
    const following = history[place + 1];
    if (following && following.number !== entry.number + 1) return; // its end was forgotten
    const [begin, end] = [seconds(entry.at), seconds(following?.at)];
    loads.push({ function: place === last ? name : "", begin, end });
  });
  return loads;
}

/** Merge loads. Histories are short, so the page remembers loads that have left them, and the functions of loads. */
function mergedLoads(before, now) {
  const known = new Map(before.map((load) => [load.begin, load]));
  const listed = now.map((load) => ({ ...load, function: load.function || known.get(load.begin)?.function || "" }));
  for (const load of now) known.delete(load.begin);
  const left = [...known.values()].filter((load) => load.end !== null);
  return [...left, ...listed].sort((one, other) => one.begin - other.begin);
}

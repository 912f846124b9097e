/** Repeats a request while the page is visible. */

const LONGEST_MS = 30_000;
/** Largest share of the time that is spent on requests: a large pool is polled less often. */
const SHARE = 0.1;

/** The pause doubles with each failure, up to this number of failures. */
const MOST_FAILURES = 5;

/** Repeats a request: one at a time, at least `intervalMs` apart, and less often after failures. */
export class Poll {
  #timer = null;
  #running = null;
  #stopped = true;
  #failures = 0;

  /**
    * @param {function(): Promise} ask resolves to false if the answer is unlikely to change soon
    * @param {number} intervalMs
    * @param {function(Error|null)} report called with each failure, and with null after each success
   */
  constructor(ask, intervalMs, report) {
    this.ask = ask;
    this.intervalMs = intervalMs;
    this.report = report;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this.#stopped) this.now();
    });
  }

  /** Start; resolve after the first answer. */
  async start() {
    if (!this.#stopped) return;
    this.#stopped = false;
    await this.now();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Send a request at once, or after the current one; resolve when its answer has arrived. */
  async now() {
    clearTimeout(this.#timer);
    while (this.#running) await this.#running;
    clearTimeout(this.#timer);
    if (this.#stopped || document.hidden) return;
    this.#running = this.#once();
    await this.#running;
  }

  async #once() {
    const begin = performance.now();
    let failure = null;
    try {
      this.#failures = (await this.ask()) === false ? MOST_FAILURES : 0;
    } catch (error) {
      failure = error;
      this.#failures += 1;
    }
    const took = performance.now() - begin;
    const pause = Math.max(this.intervalMs * 2 ** Math.min(this.#failures, MOST_FAILURES), took / SHARE);
    this.#running = null;
    if (!this.#stopped) this.#timer = setTimeout(() => this.now(), Math.min(pause, LONGEST_MS));
    this.report(failure);
  }
}

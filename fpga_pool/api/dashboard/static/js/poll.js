/** Repeats a question while the page is visible. */

const LONGEST_MS = 30_000;
/** Of the time, at most this share is spent on answers: a large pool is asked less often. */
const SHARE = 0.1;

/** The pause grows with the failures up to this number of them. */
const MOST_FAILURES = 5;

/** Asks, waits, asks again: never twice at a time, at least `intervalMs` apart, and less often after failures. */
export class Poll {
  #timer = null;
  #running = null;
  #stopped = true;
  #failures = 0;

  /**
   * @param {function(): Promise} ask resolves to false where the answer will hardly change soon
   * @param {number} intervalMs
   * @param {function(Error|null)} report gets each failure, and null after a success
   */
  constructor(ask, intervalMs, report) {
    this.ask = ask;
    this.intervalMs = intervalMs;
    this.report = report;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this.#stopped) this.now();
    });
  }

  /** Begin; return when there is a first answer. */
  async start() {
    if (!this.#stopped) return;
    this.#stopped = false;
    await this.now();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Ask at once, or after the answer that is awaited; return when there is an answer. */
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

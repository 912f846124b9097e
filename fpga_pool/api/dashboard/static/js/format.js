/** Formats numbers, times and names for people. */

const PREFIXES = ["", "k", "M", "G", "T"];

function scaled(value, unit) {
  let power = 0;
  while (Math.abs(value) >= 1000 && power < PREFIXES.length - 1) {
    value /= 1000;
    power += 1;
  }
  const digits = Math.abs(value) >= 100 || power === 0 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${PREFIXES[power]}${unit}`;
}

export const bytes = (value) => (value === null || value === undefined ? "–" : scaled(value, "B"));
export const rate = (bps) => (bps === null || bps === undefined ? "no limit" : scaled(bps, "bit/s"));

/** Return a duration: "0.42 s", "12.3 s", "4 min 05 s", "2 h 10 min". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.round(minutes / 1440)} d`;
}

/** Return an ISO 8601 time as seconds since the epoch; null for null. */
export const seconds = (iso) => (iso ? Date.parse(iso) / 1000 : null);

/** Return an ISO 8601 time as the local time of day, with the date unless it is today's. */
export function moment(iso) {
  if (!iso) return "–";
  const at = new Date(iso);
  const time = at.toLocaleTimeString();
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

/** Delay that is tolerated because the page may not know of a start yet. */
const HEARD_S = 2;
/** Return whether an expected start is overdue; `now` is the time of the pool. */
export const isOverdue = (expectedAt, now) => seconds(expectedAt) + HEARD_S < now;

/** Return why something waits, and when it is or was expected to start; `now` is the time of the pool. */
export function waiting(reason, expectedAt, now) {
  const expected = expectedAt && `${isOverdue(expectedAt, now) ? "late since" : "expected"} ${moment(expectedAt)}`;
  return [reason, expected].filter(Boolean).join("; ");
}

/** Return a number with its noun: "1 job", "2 jobs". */
export const count = (number, noun, plural = `${noun}s`) =>
  `${number.toLocaleString()} ${number === 1 ? noun : plural}`;

const PARTS = { pipeline: "subtask", task: "share" };
/** Return the noun for the jobs of a batch, pipeline or task, given its kind or the policy of its batch. */
export const partOf = (kind) => PARTS[kind] ?? "job";
/** Return the name of a job, or of a subtask of a pipeline. */
export const jobName = (job) => job.name || `job ${job.index}`;
export const shortId = (uuid) => uuid.slice(0, 8);

const collator = new Intl.Collator("en", { numeric: true });
/** Compare names so that slot10 comes after slot2. */
export const byName = (a, b) => collator.compare(a, b);

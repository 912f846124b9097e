/** The list of an object's fields, with their units. */

import { functionColours } from "./colours.js";
import { h } from "./dom.js";
import { bytes, duration, moment, rate } from "./format.js";

/** Fields that other parts of the view show or use. */
const ELSEWHERE = new Set([
  "history",
  "transfer",
  "result_transfer",
  "process_list",
  "migration_list",
  "slot_list",
  "card_list",
  "share_list",
  "subtask_list",
  "shapes",
  "links",
  "newest_jobs",
  "is_own",
  "predecessors",
]);

/** Return the fields of an object as a list; `special` has functions that show the values of some fields, by name. */
export function fieldList(found, special) {
  const list = h("dl", { class: "fields" });
  for (const [name, value] of Object.entries(found)) {
    if (ELSEWHERE.has(name) || name === "name" || name === "state" || value === null || value.length === 0) continue;
    list.append(h("dt", {}, label(name)), h("dd", {}, special[name]?.(value) ?? shown(name, value)));
  }
  return list;
}

const UNITS = /_(s|bps|bytes|at)$/;
/** Labels of fields whose names are unclear without their unit. */
const NAMES = {
  foreground_s: "pCPU time in foreground",
  background_s: "pCPU time in background",
  cpu_s: "CPU time",
  done_s: "run time done",
};
const label = (name) => NAMES[name] ?? name.replace(UNITS, "").replaceAll("_", " ");

function shown(name, value) {
  const unit = UNITS.exec(name)?.[1];
  if (unit === "s") return duration(value);
  if (unit === "bps") return rate(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "at") return moment(value);
  if (name === "function") return h("span", { class: `swatch-text ${functionColours.classOf(value)}` }, value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.join(", ");
  return String(value);
}

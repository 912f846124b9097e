/** Calls of the REST API of the pool. */

import { allOf, ApiError, request } from "./request.js";
import { session } from "./session.js";

/** Paths of objects that belong to projects and can be listed for all projects, unless a path names one already. */
const WORK = /^\/v1\/(batches|flows|gangs|jobs|pipelines|tasks)\b(?!.*[?&]project_id=)/;

function ask(method, path, body) {
  const whole = session.everyone && method !== "PATCH" && WORK.test(path);
  const asked = whole ? `${path}${path.includes("?") ? "&" : "?"}project_id=all` : path;
  return request(session.access(), method, asked, body);
}
export const get = (path) => ask("GET", path);
export const patch = (path, body) => ask("PATCH", path, body);
export const remove = (path) => ask("DELETE", path);

/** Return all objects of a list. */
export const getAll = (path, key) => allOf(get, path, key);

const worker = new Worker(new URL("lister.js", import.meta.url), { type: "module" });
/** Pending requests to the worker: the functions that settle their promises, by request number. */
const questions = new Map();
let asked = 0;

worker.addEventListener("message", ({ data }) => {
  const { resolve, reject } = questions.get(data.number);
  questions.delete(data.number);
  if (data.message === undefined) resolve(data);
  else reject(new ApiError(data.status, data.message));
});
worker.addEventListener("error", () => {
  for (const { reject } of questions.values()) reject(new ApiError(0, "the page cannot run its worker"));
  questions.clear();
});

/**
 * Read a list of named objects in the worker. Objects that have not changed since the previous request are not sent to
 * the page, which therefore need not decode them.
 *
 * @param {string} path
 * @param {string} key of the list in the answer
 * @param {boolean} whole true = all objects, as for a first request
 * @returns {Promise<{changed: object[], names: string[]|null}>} objects that are new or have changed, and the names of
 *   all objects in their order; null if the names are unchanged
 */
export function changesOf(path, key, whole) {
  asked += 1;
  return new Promise((resolve, reject) => {
    questions.set(asked, { resolve, reject });
    worker.postMessage({ number: asked, access: session.access(), path, key, whole });
  });
}

/** Return a path with query parameters; parameters that are null or undefined are left out. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** The REST API of the pool. */

import { allOf, ApiError, request } from "./request.js";
import { session } from "./session.js";

/** What belongs to a project, and can be asked for in all of them. */
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
/** By number: what becomes of the questions to the worker. */
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
 * Read a list of named objects beside the page; what has not changed since the question before is not decoded here.
 *
 * @param {string} path
 * @param {string} key of the list in the answer
 * @param {boolean} whole as if nothing had been asked before
 * @returns {Promise<{changed: object[], names: string[]|null}>} objects that are new or other than before, and the names
 *   of all in their order, null where these are as before
 */
export function changesOf(path, key, whole) {
  asked += 1;
  return new Promise((resolve, reject) => {
    questions.set(asked, { resolve, reject });
    worker.postMessage({ number: asked, access: session.access(), path, key, whole });
  });
}

/** Return a path with query parameters; those that are null are left out. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

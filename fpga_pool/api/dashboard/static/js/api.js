/** The REST API of the pool, on the server that this page is from. */

import { session } from "./session.js";

const ROOT = new URL("../", document.baseURI);
const TIMEOUT_MS = 20_000;

/** An answer that is an error, or none; `status` is 0 where the server did not answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, body) {
  const headers = { Accept: "application/json", ...session.headers() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  let answer;
  try {
    response = await fetch(new URL(path.replace(/^\//, ""), ROOT), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    answer = await response.json();
  } catch (error) {
    if (response && !response.ok) throw new ApiError(response.status, `HTTP status ${response.status}`);
    throw new ApiError(0, error.name === "TimeoutError" ? "the API did not answer in time" : "the API is unreachable");
  }
  if (!response.ok) {
    throw new ApiError(response.status, answer.errors?.[0]?.detail ?? `HTTP status ${response.status}`);
  }
  return answer;
}

export const get = (path) => request("GET", path);
export const patch = (path, body) => request("PATCH", path, body);
export const remove = (path) => request("DELETE", path);

/** Return all objects of a list, which may come in pages. */
export async function getAll(path, key) {
  const found = [];
  for (let next = path; next;) {
    const answer = await get(next);
    found.push(...answer[key]);
    next = answer.links?.find((link) => link.rel === "next")?.href;
  }
  return found;
}

/** Return a path with query parameters; those that are null are left out. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Requests to the REST API, by the page or by its worker. */

const TIMEOUT_MS = 20_000;

/** The failure of a request; `status` is the HTTP status, or 0 if there was no valid answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Return the decoded answer to a request for a path; the first argument is the result of `session.access()`. */
export async function request({ root, credentials, headers }, method, path, body) {
  const sent = { Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  let answer;
  try {
    response = await fetch(new URL(path.replace(/^\//, ""), root), {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials,
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

/** Return all objects of a list, which may have several pages; `ask` requests a path. */
export async function allOf(ask, path, key) {
  const found = [];
  for (let next = path; next;) {
    const answer = await ask(next);
    found.push(...answer[key]);
    next = answer.links?.find((link) => link.rel === "next")?.href;
  }
  return found;
}

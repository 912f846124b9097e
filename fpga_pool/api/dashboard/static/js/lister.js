/** The worker of the page: reads long lists and sends the page what has changed (`changesOf` in api.js). */

import { byName } from "./format.js";
import { allOf, request } from "./request.js";

/** The objects of each list as JSON text by name, by path of the list. */
const lists = new Map();

async function changesOf({ access, path, key, whole }) {
  const found = await allOf((next) => request(access, "GET", next), path, key);
  const before = (!whole && lists.get(path)) || new Map();
  const now = new Map(found.map((one) => [one.name, JSON.stringify(one)]));
  lists.set(path, now);
  const changed = found.filter((one) => before.get(one.name) !== now.get(one.name));
  const sameNames = before.size === now.size && changed.every((one) => before.has(one.name));
  return { changed, names: sameNames ? null : [...now.keys()].sort(byName) };
}

addEventListener("message", async ({ data }) => {
  const { number } = data;
  try {
    postMessage({ number, ...(await changesOf(data)) });
  } catch (error) {
    postMessage({ number, status: error.status ?? 0, message: error.message });
  }
});

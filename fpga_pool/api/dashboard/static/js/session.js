/**
 * Whom the page asks, and on whose behalf: the API that it is from, with a token of Keystone or, where nobody
 * authenticates, for a project; or, embedded in a page of the same origin, the server of that page, which knows its user.
 */

const TOKEN = "fpga_pool.token";
const PROJECT = "fpga_pool.project";

/** The frame that embeds the page says where requests go (data-api), and proves that they are the page's (data-csrf). */
const frame = window.frameElement?.dataset.api ? window.frameElement : null;
const root = frame ? new URL(frame.dataset.api, frame.baseURI).href : new URL("../", document.baseURI).href;

/** Both are kept by this tab only, until it is closed. */
export const session = {
  embedded: frame !== null,
  /** The work of all projects is shown, not that of one. */
  everyone: false,
  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  },
  get project() {
    return sessionStorage.getItem(PROJECT) ?? "";
  },
  signIn(token) {
    sessionStorage.setItem(TOKEN, token);
  },
  chooseProject(project) {
    if (project) sessionStorage.setItem(PROJECT, project);
    else sessionStorage.removeItem(PROJECT);
  },
  signOut() {
    sessionStorage.removeItem(TOKEN);
  },
  /** @returns {{root: string, credentials: string, headers: object}} what `request` takes */
  access() {
    if (frame) {
      // The second lets Horizon answer 401 where nobody is logged in, not lead to its form.
      const headers = { "X-CSRFToken": frame.dataset.csrf, "X-Requested-With": "XMLHttpRequest" };
      return { root, credentials: "same-origin", headers };
    }
    const project = this.project ? { "X-Project-Id": this.project } : {};
    return { root, credentials: "omit", headers: this.token ? { "X-Auth-Token": this.token } : project };
  },
};

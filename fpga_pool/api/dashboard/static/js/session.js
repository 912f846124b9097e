/**
 * Where requests go and on whose behalf. By default: to the API that serves the page, with a Keystone token or, without
 * authentication, for a project. Embedded in a page of the same origin: to the server of that page, which knows the
 * user.
 */

const TOKEN = "fpga_pool.token";
const PROJECT = "fpga_pool.project";

/** The frame that embeds the page, if any; it has the URL for requests (data-api) and a CSRF token (data-csrf). */
const frame = window.frameElement?.dataset.api ? window.frameElement : null;
const root = frame ? new URL(frame.dataset.api, frame.baseURI).href : new URL("../", document.baseURI).href;

/** The session; its token and project are kept by this tab only, until it is closed. */
export const session = {
  embedded: frame !== null,
  /** Whether the work of all projects is shown, instead of that of one. */
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
  /** @returns {{root: string, credentials: string, headers: object}} the first argument of `request` */
  access() {
    if (frame) {
      // X-Requested-With makes Horizon answer 401 if nobody is logged in, instead of redirecting to its login form.
      const headers = { "X-CSRFToken": frame.dataset.csrf, "X-Requested-With": "XMLHttpRequest" };
      return { root, credentials: "same-origin", headers };
    }
    const project = this.project ? { "X-Project-Id": this.project } : {};
    return { root, credentials: "omit", headers: this.token ? { "X-Auth-Token": this.token } : project };
  },
};

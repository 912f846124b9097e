/** On whose behalf the page asks: a token of Keystone, or, where nobody authenticates, a project. */

const TOKEN = "fpga_pool.token";
const PROJECT = "fpga_pool.project";

/** Both are kept by this tab only, until it is closed. */
export const session = {
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
  headers() {
    if (this.token) return { "X-Auth-Token": this.token };
    return this.project ? { "X-Project-Id": this.project } : {};
  },
};

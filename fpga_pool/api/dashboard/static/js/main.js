/** Starts the page: the views, chosen by the address, the detail view beside them, and the session. */

import { ask } from "./dialog.js";
import { DetailView } from "./detail_view.js";
import { setText } from "./dom.js";
import { EgressView } from "./egress_view.js";
import { Pool } from "./pool.js";
import { PoolView } from "./pool_view.js";
import { QueueView } from "./queue_view.js";
import { ScheduleView } from "./schedule_view.js";
import { session } from "./session.js";
import { TiersView } from "./tiers_view.js";
import { UsageView } from "./usage_view.js";

const main = document.getElementById("view");
const status = document.getElementById("status");
const sessionButton = document.getElementById("session");

/** Read the address: #/VIEW or #/VIEW/KIND/ID of the object in detail. The default view is one the caller may see. */
function readAddress() {
  const [, view, kind, id] = location.hash.split("/").map(decodeURIComponent);
  const first = pool.forbidden.has("slots") ? "queue" : "pool";
  return { view: views[view] ? view : first, kind, id };
}

function go(view, kind, id) {
  location.hash = ["#", view, ...(kind ? [kind, encodeURIComponent(id)] : [])].join("/");
}

const open = (kind, id, view = readAddress().view) => go(view, kind, id);
function close() {
  detail.show(null);
  go(readAddress().view);
}
function choose(batch) {
  pool.chosenBatch = batch;
  pool.refresh();
}

const pool = new Pool(report);
const views = {
  pool: new PoolView(pool, open),
  queue: new QueueView(pool, open, close),
  schedule: new ScheduleView(pool, open, choose),
  egress: new EgressView(pool, open, report),
  tiers: new TiersView(pool, open),
  usage: new UsageView(pool, open, report),
};
const detail = new DetailView(document.getElementById("detail"), pool, open, close);
let shown = null;
/** Whether the API authenticates, and whether the dialog for a token is open. */
let authenticates = false;
let asking = false;

function show() {
  const { view, kind, id } = readAddress();
  if (["batch", "pipeline", "task", "job"].includes(kind)) pool.chosenBatch = id.split(".")[0];
  if (shown !== views[view]) {
    shown?.leave?.();
    shown = views[view];
    shown.enter?.();
    main.replaceChildren(shown.element);
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#/${view}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${view[0].toUpperCase()}${view.slice(1)} · FPGA pool`;
  }
  shown.update();
  detail.show(kind, id);
}

/** Whether a redraw is scheduled: at most one per frame, however many answers arrive. */
let drawing = false;
const changed = new Set();
pool.addEventListener("change", (event) => {
  changed.add(event.detail);
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (views[readAddress().view] !== shown) show();
    else if ([...changed].some((part) => shown.parts.has(part))) shown.update();
    if (changed.has("slots") || changed.has("work")) detail.refresh();
    changed.clear();
  });
});

function report(failure) {
  if (failure?.status === 401) {
    askForToken();
    return;
  }
  document.body.classList.toggle("stale", Boolean(failure));
  setText(status, failure ? `Not up to date: ${failure.message}` : "Live");
}

async function askForToken() {
  if (asking) return;
  if (session.embedded) {
    pool.stop();
    document.body.classList.add("stale");
    setText(status, "Signed out: reload the page to log in again");
    return;
  }
  authenticates = asking = true;
  pool.stop();
  session.signOut();
  setText(status, "Signed out");
  showSession();
  const token = await ask({
    title: "Sign in",
    text: "Paste a token of Keystone, as “openstack token issue” prints it. This tab keeps it until it is closed.",
    confirm: "Sign in",
    field: { label: "Token", type: "password" },
  });
  asking = false;
  if (!token) return;
  session.signIn(token);
  pool.forget();
  pool.start();
  showSession();
}

async function changeSession() {
  if (authenticates || session.token) return askForToken();
  const project = await ask({
    title: "Project",
    text: "This pool does not authenticate. Whose work is shown? Empty: the default project.",
    confirm: "Show",
    field: { label: "Project", value: session.project },
  });
  if (project === null) return;
  session.chooseProject(project);
  pool.forget();
  pool.refresh();
  showSession();
}

function showSession() {
  const project = session.project ? `Project ${session.project}` : "Project";
  setText(sessionButton, session.token ? "Sign out" : authenticates ? "Sign in" : project);
}

// The embedding page shows its own title and user.
document.querySelector("h1").hidden = sessionButton.hidden = session.embedded;
sessionButton.addEventListener("click", changeSession);
addEventListener("hashchange", show);
addEventListener("resize", () => shown.update());
showSession();
show();
pool.start();
setInterval(() => !document.hidden && shown.move?.(), 500);

/** The detail view of one object: its fields, parts, history and possible actions. */

import { ask } from "./dialog.js";
import { get, getAll, patch, remove, withQuery } from "./api.js";
import { h, reconcile, setText, tableHead, takeChildren } from "./dom.js";
import { fieldList } from "./fields.js";
import { duration, isOverdue, jobName, moment, partOf, rate, shortId, waiting } from "./format.js";
import { pipelineGraph } from "./graph.js";
import { cardText, enclosureText, linksOf, neighbours } from "./links.js";
import { all, isEnded, KINDS } from "./pool.js";
import { makeBadge, showBadge } from "./progress.js";
import { session } from "./session.js";

const LISTED = 200;
const LINK_COLUMNS = ["Slot", "Over", "State"];
/** What an operator can drain, with the beginning of the sentence that the dialog shows. */
const DRAINED = { slot: "The slot gets", card: "All slots of the card get", host: "All slots of the host get" };

/** Shows the object that the address names, e.g. slot/UUID. Refreshes whenever slots or work have changed. */
export class DetailView {
  #shown = null;
  #asking = false;
  #returnTo = null;

  constructor(element, pool, open, close) {
    Object.assign(this, { element, pool, open });
    this.title = h("h2", { id: "detail-title", tabindex: "-1" });
    this.badge = makeBadge();
    this.error = h("p", { class: "error", role: "alert" });
    this.actions = h("div", { class: "buttons" });
    this.body = h("div");
    element.append(
      h(
        "div",
        { class: "head" },
        this.title,
        this.badge,
        h("button", { type: "button", class: "plain close", "aria-label": "Close detail", on: { click: close } }, "✕"),
      ),
      this.error,
      this.actions,
      this.body,
    );
    addEventListener("keydown", ({ key }) => {
      if (key === "Escape" && !element.hidden && !document.querySelector("dialog[open]")) close();
    });
  }

  /** Show an object; hide the view if `kind` is null. */
  async show(kind, id) {
    const isNew = kind && (this.#shown?.kind !== kind || this.#shown?.id !== id);
    if (isNew && this.element.hidden) this.#returnTo = document.activeElement;
    this.#shown = kind ? { kind, id } : null;
    const hadFocus = this.element.contains(document.activeElement) || document.activeElement === document.body;
    const closes = !kind && !this.element.hidden;
    this.element.hidden = !kind;
    if (closes && hadFocus) this.#returnTo?.focus?.({ preventScroll: true });
    if (!kind) return;
    if (!isNew) return;
    this.error.textContent = "";
    this.title.textContent = `${kind} …`;
    this.actions.replaceChildren();
    this.body.replaceChildren();
    await this.refresh();
    this.title.focus({ preventScroll: true });
  }

  async refresh() {
    const shown = this.#shown;
    if (!shown || this.#asking) return;
    this.#asking = true;
    try {
      const found = await this.#fetch(shown);
      if (shown === this.#shown) this.#render(shown, found);
    } catch (error) {
      this.error.textContent = error.message;
    } finally {
      this.#asking = false;
    }
    if (shown !== this.#shown) await this.refresh();
  }

  async #fetch({ kind, id }) {
    const path = encodeURIComponent(id);
    if (kind === "host") return this.#host(id, (await get(`/v1/hosts/${path}`)).host);
    if (kind === "card") return (await get(`/v1/cards/${await cardNamed(id)}`)).card;
    if (kind === "slot") return this.#slot((await get(`/v1/slots/${path}`)).slot);
    if (kind === "usage") {
      const [project, name] = id.split("/");
      const query = { project_id: project, function: name, state: "COMPLETED", limit: LISTED };
      const [{ jobs }, { quota }] = await Promise.all([get(withQuery("/v1/jobs", query)), get("/v1/quotas")]);
      return { project_id: project, function: name, newest_jobs: jobs, is_own: isOwn(quota, project) };
    }
    if (kind !== "job") return (await get(`${KINDS[kind].path}/${path}`))[kind];
    return (await get(`/v1/jobs/${encodeURIComponent(id.split(".")[1])}`)).job;
  }

  /** Add whether the holder's project is one whose work is shown; other holders are named, but not linked. */
  async #slot(found) {
    if (!found.holder) return found;
    const { quota } = await get("/v1/quotas").catch(() => ({ quota: null }));
    return { ...found, is_own: isOwn(quota, found.holder_project_id) };
  }

  /** Add cards and measurements to a host. A caller who may not list slots may not see measurements either. */
  async #host(name, found) {
    if (this.pool.forbidden.has("slots")) return found;
    const measured = get(withQuery("/v1/counters", { host: name }));
    const [card_list, { counters }] = await Promise.all([cardsOf(name), measured]);
    if (!counters.length) return { ...found, card_list };
    const { host: _, at, guests, cards, ...means } = counters[0];
    return {
      ...found,
      card_list,
      measured_at: at,
      ...means,
      guests: guests.map((guest) => `${shortId(guest.uuid)} ${guest.cpus} CPUs`),
      dma: cards.map((card) => `${card.card} ${rate(card.dma_bps)}`),
    };
  }

  #render({ kind, id }, found) {
    setText(this.error, "");
    const name =
      kind === "job" ? jobName(found) : found.name || (kind === "usage" ? `of ${id}` : shortId(found.uuid ?? id));
    setText(this.title, `${kind} ${name}`);
    this.badge.hidden = !found.state;
    if (found.state) showBadge(this.badge, found.state);
    const actions = this.#actionsOf(kind, found);
    reconcile(
      this.actions,
      actions,
      ([label]) => label,
      ([label]) => h("button", { type: "button" }, label),
      (button, [, run]) => (button.onclick = () => this.#act(run)),
    );
    const scrolled = this.element.scrollTop;
    const focused = focusPath(this.body);
    takeChildren(this.body, h("div", {}, ...this.#partsOf(kind, found)));
    this.element.scrollTop = scrolled;
    focused();
  }

  #partsOf(kind, found) {
    const now = this.pool.now();
    const link = (to, id, text) =>
      h(
        "button",
        { type: "button", class: "plain link", data: { opens: `${to}/${id}` }, on: { click: () => this.open(to, id) } },
        text,
      );
    const slotLink = (name) => {
      const slot = this.pool.slotNamed(name);
      return slot ? link("slot", slot.uuid, name) : name;
    };
    const jobLink = (uuid) => {
      const job = this.pool.jobNamed(uuid);
      return link("job", `${job?.batch_uuid ?? ""}.${uuid}`, job ? jobName(job) : shortId(uuid));
    };
    const special = {
      slot: slotLink,
      job: (uuid) => (found.is_own === false ? uuid : jobLink(uuid)),
      holder: (uuid) => {
        if (!found.is_own || found.held_by === "instance") return uuid;
        return found.held_by === "pool" ? jobLink(uuid) : link(found.held_by, uuid, shortId(uuid));
      },
      host: (name) => link("host", name, name),
      card: (name) => link("card", `${found.host}/${name}`, name),
      batch_uuid: (uuid) => link("batch", uuid, shortId(uuid)),
      expected_at: (at) => (isOverdue(at, now) ? `${moment(at)}, late` : moment(at)),
      requester: (name) => (name.startsWith("server:") ? name : link("host", name, name)),
    };
    const jobs =
      kind === "batch"
        ? this.pool.jobsOf(found.uuid)
        : (found.subtask_list ?? found.share_list ?? found.newest_jobs ?? []);
    const ofJob = (job) => [
      // Jobs of other projects are listed for an admin, but have no link to their details.
      found.is_own === false ? jobName(job) : link("job", `${job.batch_uuid}.${job.uuid}`, jobName(job)),
      job.function,
      job.slot ? slotLink(job.slot) : "–",
      [badge(job.state), h("p", { class: "note" }, waiting(job.reason, job.expected_at, now))],
    ];
    const slots =
      kind === "host"
        ? this.pool.slots.filter((slot) => slot.host === found.name).map((slot) => slot.name)
        : (found.slot_list ?? []).map((one) => one.name ?? one);
    const stateOf = (name) => this.pool.slotNamed(name);
    const part = partOf(kind);
    const partTitle = part[0].toUpperCase() + part.slice(1);
    return [
      kind === "pipeline"
        ? section(
            "Subtasks as a graph",
            pipelineGraph(found.subtask_list, (job) => this.open("job", `${job.batch_uuid}.${job.uuid}`)),
          )
        : null,
      fieldList(found, special),
      kind === "slot" ? this.#linksOf(found, slotLink) : null,
      kind === "card"
        ? section("Links", h("p", { class: "note" }, wordsOf(found.name, linksOf(found.slot_list[0]))))
        : null,
      found.card_list?.length
        ? table(
            "Cards",
            ["Card", "Board", "State"],
            found.card_list.map((card) => [link("card", card.name, card.name), card.board, badge(card.state)]),
          )
        : null,
      slots.length
        ? table(
            "Slots",
            ["Slot", "Function", "State"],
            slots.map((name) => [
              slotLink(name),
              stateOf(name)?.function ?? "",
              stateOf(name) ? badge(stateOf(name).state) : "",
            ]),
          )
        : null,
      jobs.length
        ? table(
            jobs.length > LISTED ? `First ${LISTED} of ${jobs.length} ${part}s` : `${partTitle}s`,
            [partTitle, "Function", "Place", "State"],
            jobs.slice(0, LISTED).map(ofJob),
          )
        : null,
      found.process_list?.length
        ? table(
            "Processes",
            ["#", "pCPU", "Tier", "Done", "State"],
            found.process_list.map((one) => [
              String(one.index),
              one.processor,
              one.tier,
              duration(one.done_s),
              badge(one.state),
            ]),
          )
        : null,
      found.migration_list?.length
        ? table(
            "Migrations",
            ["Began", "Ended", "State"],
            found.migration_list.map((one) => [moment(one.began_at), moment(one.ended_at), badge(one.state)]),
          )
        : null,
      found.transfer?.length
        ? table(
            "Planned input",
            ["From", "Until", "Rate"],
            found.transfer.map((piece) => [duration(piece.begin_s), duration(piece.end_s), rate(piece.bps)]),
          )
        : null,
      found.history?.length ? section("History", historyOf(found.history)) : null,
    ];
  }

  #linksOf(slot, slotLink) {
    const links = linksOf(slot);
    const ofHost = this.pool.slots.filter((one) => one.host === slot.host);
    const rows = neighbours(this.pool.slotNamed(slot.name) ?? slot, ofHost).map(([one, how]) => [
      slotLink(one.name),
      how,
      badge(one.state),
    ]);
    return section(
      "Links",
      h(
        "div",
        {},
        h("p", { class: "note" }, wordsOf(slot.card, links)),
        rows.length ? plainTable(LINK_COLUMNS, rows) : null,
      ),
    );
  }

  /** Return the actions that are possible on an object: [label, function]. */
  #actionsOf(kind, found) {
    const actions = [];
    if (DRAINED[kind]) {
      const ofHost = () => this.pool.slots.filter((slot) => slot.host === found.name);
      const slots = kind === "slot" ? [found] : kind === "card" ? found.slot_list : ofHost();
      const change = (body) => all((found.card_list ?? [found]).map(({ uuid }) => patch(pathOf(kind, uuid), body)));
      if (slots.some((slot) => !slot.drain_requested)) actions.push(["Drain…", () => drain(kind, found.name, change)]);
      if (slots.some((slot) => slot.drain_requested)) actions.push(["Resume", () => change({ drain: false })]);
      return actions;
    }
    const isPlanned = kind === "task" ? found.attempt > 0 : found.dispatched_at && kind !== "job";
    if (isPlanned) {
      actions.push(["Show schedule", () => this.open(kind, found.uuid, "schedule")]);
    }
    if (KINDS[kind] && !isEnded(found) && !found.cancel_requested) actions.push(["Cancel…", () => cancel(kind, found)]);
    return actions;
  }

  async #act(run) {
    try {
      await run();
      this.error.textContent = "";
    } catch (error) {
      this.error.textContent = error.message;
    }
    this.pool.refresh();
    await this.refresh();
  }
}

const isOwn = (quota, project) => session.everyone || quota?.project_id === project;

const cardsOf = (host) => getAll(withQuery("/v1/cards", { host }), "cards");

/** Return the uuid of a card by its name, host/card. */
async function cardNamed(name) {
  const found = (await cardsOf(name.split("/")[0])).find((card) => card.name === name);
  if (!found) throw new Error(`no card ${name}`);
  return found.uuid;
}

/** Return the API path for draining an object. A host is drained card by card. */
const pathOf = (kind, uuid) => `/v1/${kind === "slot" ? "slots" : "cards"}/${uuid}`;

/** Describe the links between the slots of a card, and those between the card and other cards. */
const wordsOf = (card, links) =>
  [links.enclosure && enclosureText(links), `${card}: ${cardText(links)}`].filter(Boolean).join("; ");

async function drain(kind, name, change) {
  const reason = await ask({
    title: `Drain ${name}?`,
    text: `${DRAINED[kind]} no new work, and a slot is drained when what it computes is complete.`,
    confirm: "Drain",
    field: { label: "Reason" },
  });
  if (reason !== null) await change({ drain: true, reason });
}

async function cancel(kind, work) {
  const answer = await ask({
    title: `Cancel ${kind} ${work.name || shortId(work.uuid)}?`,
    text: "What is running is stopped and its results are lost; this cannot be taken back.",
    confirm: `Cancel the ${kind}`,
  });
  if (answer !== null) await remove(`${KINDS[kind].path}/${work.uuid}`);
}

function badge(state) {
  const element = makeBadge();
  showBadge(element, state);
  return element;
}

const section = (title, content) => h("section", {}, h("h3", {}, title), content);

const table = (title, columns, rows) => section(title, plainTable(columns, rows));

function plainTable(columns, rows) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      tableHead(columns),
      h("tbody", {}, ...rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell))))),
    ),
  );
}

function historyOf(history) {
  return h(
    "ol",
    { class: "history" },
    ...history
      .toReversed()
      .map((entry) =>
        h(
          "li",
          {},
          h("time", { datetime: entry.at }, moment(entry.at)),
          h("span", {}, `${entry.event}`),
          h("span", { class: "note" }, stepOf(entry)),
        ),
      ),
  );
}

function stepOf(entry) {
  const states = !entry.before || entry.before === entry.after ? entry.after : `${entry.before} → ${entry.after}`;
  return [states, entry.reason, entry.request_id].filter(Boolean).join(" · ");
}

/** Return a function that, if the focused element is gone by then, focuses the element at the same position. */
function focusPath(parent) {
  const focused = document.activeElement;
  const place = [...parent.querySelectorAll("button, [tabindex]")].indexOf(focused);
  return () => {
    if (place < 0 || focused.isConnected) return;
    parent.querySelectorAll("button, [tabindex]")[place]?.focus({ preventScroll: true });
  };
}

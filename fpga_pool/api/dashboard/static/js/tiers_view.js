/** The two tiers of processors: which gang is in the foreground, and which in the background. */

import { gangColours } from "./colours.js";
import { h, panel, reconcile, scrollingTable, setAttribute, setText } from "./dom.js";
import { byName, duration, shortId, waiting } from "./format.js";
import { isEnded } from "./pool.js";
import { makeBadge, showBadge } from "./progress.js";

const COLUMNS = ["Gang", "State", "Processes", "Done", "Swaps", "Migrations", "Reason or expected start"];
const TIERS = ["foreground", "background"];
/** Shown for tiers without a listed process, if the caller may not list processors. */
const UNKNOWN = "no gang of this project";
const LIVE = new Set(["RESERVED", "STARTING", "RUNNING", "EXITED", "SAVING", "STOPPING", "STOPPED"]);

export class TiersView {
  parts = new Set(["work", "processors", "all"]);

  constructor(pool, open) {
    this.pool = pool;
    this.open = open;
    this.map = h("div", { class: "map" });
    this.body = h("tbody");
    this.empty = h("p", { class: "empty" });
    this.element = h(
      "div",
      { class: "view" },
      panel("tiers", "Processors of gangs", this.map, this.empty),
      panel("gangs", "Open gangs", scrollingTable("Gangs", COLUMNS, this.body)),
    );
  }

  update() {
    const gangs = this.pool.work.gang
      .filter((gang) => !isEnded(gang))
      .map((gang) => this.pool.details.get(gang.uuid) ?? gang);
    const known = this.pool.processors;
    const shown = known?.filter((one) => one.offered || isHeld(one)) ?? processorsOf(gangs);
    setText(this.empty, known ? "No host gives processors to gangs." : "No gang of this project has processors.");
    this.empty.hidden = shown.length > 0;
    const listed = new Map(this.pool.work.gang.map((gang) => [gang.uuid, gang]));
    const byHost = [...Map.groupBy(shown, ({ host }) => host)];
    reconcile(
      this.map,
      byHost,
      ([host]) => host,
      ([host]) => makeHost(host, () => this.open("host", host)),
      (section, [, ofHost]) =>
        reconcile(
          section.lastChild,
          ofHost,
          ({ name }) => name,
          ({ name }) => makeProcessor(name),
          (element, processor) =>
            TIERS.forEach((tier, number) =>
              this.#showTier(element.children[number + 1], tier, processor, known ? "free" : UNKNOWN, listed),
            ),
        ),
    );
    reconcile(
      this.body,
      gangs,
      (gang) => gang.uuid,
      (gang) => this.#makeRow(gang),
      (row, gang) => updateRow(row, gang, this.pool.now()),
    );
  }

  #showTier(tile, tier, { name: processor, [tier]: process }, free, listed) {
    const uuid = process?.gang_uuid;
    const gang = listed.get(uuid);
    const name = process ? gang?.name || shortId(uuid) : "";
    const whose = gang ? "" : ", which is not listed";
    const shown = process ? `process ${process.index} of gang ${name}${whose}, ${process.state.toLowerCase()}` : free;
    setText(tile, process ? `#${process.index} ${name}` : free === UNKNOWN ? "" : free);
    setAttribute(tile, "class", `tier ${tier} ${gangColours.classOf(uuid)}`);
    setAttribute(tile, "aria-label", `${processor}, ${tier}: ${shown}`);
    setAttribute(tile, "title", tile.getAttribute("aria-label"));
    tile.disabled = !gang;
    tile.onclick = gang ? () => this.open("gang", uuid) : null;
  }

  #makeRow(gang) {
    const open = () => this.open("gang", gang.uuid);
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        h("button", { type: "button", class: "plain link", on: { click: open } }, gang.name || shortId(gang.uuid)),
      ),
      h("td", {}, makeBadge()),
      h("td", {}, String(gang.processes)),
      h("td"),
      h("td"),
      h("td"),
      h("td", { class: "reason" }),
    );
  }
}

function updateRow(row, gang, now) {
  showBadge(row.children[1].firstChild, gang.state);
  setText(row.children[3], `${duration(gang.done_s ?? 0)} of ${duration(gang.runtime_s)}`);
  setText(row.children[4], String(gang.swaps));
  setText(row.children[5], String(gang.migrations));
  setText(row.children[6], waiting(gang.pending_reason || gang.reason, gang.expected_at, now));
}

const isHeld = (processor) => TIERS.some((tier) => processor[tier]);

/** Return the processors that these gangs use: the only ones known to a caller who may not list processors. */
function processorsOf(gangs) {
  const processes = gangs.flatMap((gang) =>
    (gang.process_list ?? []).filter((one) => LIVE.has(one.state)).map((one) => ({ ...one, gang_uuid: gang.uuid })),
  );
  return [...Map.groupBy(processes, ({ processor }) => processor)]
    .map(([name, here]) => ({ name, host: here[0].host, ...Object.fromEntries(here.map((one) => [one.tier, one])) }))
    .sort((a, b) => byName(a.name, b.name));
}

const makeHost = (name, open) =>
  h(
    "section",
    { class: "host", "aria-label": `Host ${name}` },
    h("h3", {}, h("button", { type: "button", class: "plain link", on: { click: open } }, name)),
    h(
      "div",
      { class: "processor tier-names", "aria-hidden": "true" },
      h("span"),
      ...TIERS.map((tier) => h("span", { class: "name" }, tier)),
    ),
    h("div", { class: "processors" }),
  );
const makeProcessor = (name) =>
  h(
    "div",
    { class: "processor", role: "group", "aria-label": name },
    h("span", { class: "name" }, `pCPU ${name.split("/").at(-1)}`),
    ...TIERS.map(() => h("button", { type: "button" })),
  );

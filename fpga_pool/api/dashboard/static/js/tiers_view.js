/** The two tiers of processors: which gang is in the foreground, and which in the background. */

import { gangColours } from "./colours.js";
import { h, panel, reconcile, scrollingTable, setAttribute, setText } from "./dom.js";
import { byName, duration, shortId, waiting } from "./format.js";
import { isEnded } from "./pool.js";
import { makeBadge, showBadge } from "./progress.js";

const COLUMNS = ["Gang", "State", "Processes", "Done", "Swaps", "Migrations", "Reason or expected start"];
const TIERS = ["foreground", "background"];
const LIVE = new Set(["RESERVED", "STARTING", "RUNNING", "EXITED", "SAVING", "STOPPING", "STOPPED"]);

export class TiersView {
  parts = new Set(["work", "all"]);

  constructor(pool, open) {
    this.pool = pool;
    this.open = open;
    this.map = h("div", { class: "map" });
    this.body = h("tbody");
    this.empty = h("p", { class: "empty" }, "No gang of this project has processors.");
    this.element = h(
      "div",
      { class: "view" },
      panel("tiers", "Gangs on processors", this.map, this.empty),
      panel("gangs", "Open gangs", scrollingTable("Gangs", COLUMNS, this.body)),
    );
  }

  update() {
    const gangs = this.pool.work.gang
      .filter((gang) => !isEnded(gang))
      .map((gang) => this.pool.details.get(gang.uuid) ?? gang);
    const placed = gangs.flatMap((gang) =>
      (gang.process_list ?? []).filter((one) => LIVE.has(one.state)).map((process) => ({ gang, process })),
    );
    this.empty.hidden = placed.length > 0;
    const byHost = [...Map.groupBy(placed, ({ process }) => process.host)].sort(([a], [b]) => byName(a, b));
    reconcile(
      this.map,
      byHost,
      ([host]) => host,
      ([host]) => makeHost(host, () => this.open("host", host)),
      (section, [, ofHost]) => {
        const processors = [...Map.groupBy(ofHost, ({ process }) => process.processor)].sort(([a], [b]) =>
          byName(a, b),
        );
        reconcile(
          section.lastChild,
          processors,
          ([name]) => name,
          ([name]) => makeProcessor(name),
          (element, [name, here]) => {
            TIERS.forEach((tier, number) =>
              this.#showTier(
                element.children[number + 1],
                name,
                tier,
                here.find(({ process }) => process.tier === tier),
              ),
            );
          },
        );
      },
    );
    reconcile(
      this.body,
      gangs,
      (gang) => gang.uuid,
      (gang) => this.#makeRow(gang),
      (row, gang) => updateRow(row, gang, this.pool.now()),
    );
  }

  #showTier(tile, processor, tier, found) {
    const name = found ? found.gang.name || shortId(found.gang.uuid) : "";
    const shown = found
      ? `process ${found.process.index} of gang ${name}, ${found.process.state.toLowerCase()}`
      : "no gang of this project"; // those of others are not known
    setText(tile, found ? `${name} #${found.process.index}` : "");
    setAttribute(tile, "class", `tier ${tier} ${gangColours.classOf(found?.gang.uuid)}`);
    setAttribute(tile, "aria-label", `${processor}, ${tier}: ${shown}`);
    tile.title = tile.getAttribute("aria-label");
    tile.disabled = !found;
    tile.onclick = found ? () => this.open("gang", found.gang.uuid) : null;
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

/** The map of the pool: hosts, their cards, and a tile for each slot. */

import { functionColours, SLOT_STATES } from "./colours.js";
import { h, panel, reconcile, setAttribute, setText } from "./dom.js";
import { count, rate } from "./format.js";
import { cardText, enclosureText, linksOf } from "./links.js";
import { isEnded, KINDS } from "./pool.js";
import { Roving } from "./roving.js";

/** With more slots than this the tiles are small, without text. */
const SMALL_FROM = 400;
/** Time for making tiles per frame; the remaining tiles are made in the next frames. */
const FRAME_MS = 12;

const REFUSAL = "Slots are shown to operators only: your roles do not allow to list them.";
/** Fields of a slot that its tile shows. */
const LOOKS = ["state", "function", "drain_requested"];

export class PoolView {
  parts = new Set(["slots", "hosts", "work", "functions", "all"]);
  #tiles = new Map();
  #filter = "";
  #small = false;
  /** The slots and hosts that the map shows; empty if the map is not complete. */
  #shown = {};

  constructor(pool, open) {
    this.pool = pool;
    this.open = open;
    this.figures = h("dl", { class: "figures", "aria-label": "Summary" });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Show slots of one state or function" });
    this.map = h("div", {
      class: "map",
      on: {
        click: (event) => this.#click(event),
        // The title is set when the pointer enters a tile, so that state changes need not update those of all tiles.
        pointerover: ({ target }) => target.shows && (target.title = target.getAttribute("aria-label")),
      },
    });
    this.roving = new Roving(this.map, ".slot");
    this.refusal = h("p", { class: "empty" }, REFUSAL);
    this.others = h("ul", { class: "chips", "aria-labelledby": "others-title" });
    this.othersTitle = h("h2", { id: "others-title" });
    this.element = h(
      "div",
      { class: "view" },
      this.figures,
      panel("map", "Cards and slots", this.refusal, this.legend, this.map),
      h("section", { class: "panel" }, this.othersTitle, this.others),
    );
  }

  update() {
    const { slots, hosts, forbidden } = this.pool;
    const states = countsOf(slots, (slot) => slot.state);
    this.#showFigures(slots, hosts, states);
    const isRefused = forbidden.has("slots");
    this.refusal.hidden = !isRefused;
    this.map.hidden = this.legend.hidden = isRefused;
    setText(this.othersTitle, isRefused ? "Hosts" : "Hosts without cards");
    if (!isRefused) this.#showLegend(slots, states);
    if (slots === this.#shown.slots && hosts === this.#shown.hosts) return;
    const byHost = Map.groupBy(slots, (slot) => slot.host);
    this.#shown = this.#showMap(slots, hosts, byHost) ? { slots, hosts } : {};
    const others = hosts.filter((host) => !byHost.has(host.name));
    this.othersTitle.parentElement.hidden = !others.length;
    reconcile(
      this.others,
      others,
      (host) => host.name,
      (host) => this.#makeChip(host),
      (chip, host) => {
        setAttribute(chip.firstChild, "class", host.alive ? "chip" : "chip lost");
        setText(chip.firstChild, host.alive ? `${host.name} · ${rate(host.egress_bps)}` : `${host.name} · lost`);
      },
    );
  }

  #makeChip(host) {
    return h("li", {}, h("button", { type: "button", on: { click: () => this.open("host", host.name) } }));
  }

  #showFigures(slots, hosts, states) {
    const inState = (state) => states.get(state) ?? 0;
    const inService = slots.length - inState("FAULTED") - inState("DRAINED");
    const share = inService ? Math.round((100 * inState("BUSY")) / inService) : 0;
    const open = Object.keys(KINDS).map((kind) => [kind, this.pool.work[kind].filter((one) => !isEnded(one)).length]);
    const lost = hosts.filter((host) => !host.alive).length;
    const figures = [
      ["slots", "Slots busy", `${inState("BUSY")} of ${inService}`, `${share} %`, ""],
      ["slots", "Loading", String(inState("LOADING")), "", ""],
      ["slots", "Out of service", String(slots.length - inService), "", inState("FAULTED") ? "bad" : ""],
      ["hosts", "Hosts alive", `${hosts.length - lost} of ${hosts.length}`, "", lost ? "bad" : ""],
      [
        "work",
        "Open work",
        String(open.reduce((sum, [, number]) => sum + number, 0)),
        open
          .filter(([, number]) => number)
          .map(([kind, number]) => count(number, kind, KINDS[kind].many))
          .join(", "),
        "",
      ],
    ];
    reconcile(
      this.figures,
      figures.filter(([part]) => !this.pool.forbidden.has(part)),
      ([, name]) => name,
      ([, name]) => h("div", { class: "figure" }, h("dt", {}, name), h("dd"), h("dd", { class: "note" })),
      (figure, [, , value, note, look]) => {
        setText(figure.children[1], value);
        setAttribute(figure.children[1], "class", look);
        setText(figure.children[2], note);
      },
    );
  }

  #showLegend(slots, states) {
    const functions = countsOf(slots, (slot) => slot.function);
    functions.delete("");
    const items = [
      ...Object.entries(SLOT_STATES).map(([state, { text, mark }]) => ({
        key: state,
        text,
        mark,
        number: states.get(state) ?? 0,
        look: "hue-none",
        state,
      })),
      ...[...functions.keys()].sort().map((name) => ({
        key: `function ${name}`,
        text: name,
        mark: "",
        number: functions.get(name),
        look: functionColours.classOf(name),
        state: "BUSY",
      })),
    ];
    reconcile(
      this.legend,
      items,
      (item) => item.key,
      (item) =>
        h(
          "button",
          { type: "button", class: "key", "aria-pressed": "false", on: { click: () => this.#choose(item.key) } },
          h("span", { class: `swatch ${item.look}`, data: { state: item.state }, "aria-hidden": "true" }, item.mark),
          h("span"),
          h("b"),
        ),
      (button, item) => {
        setText(button.children[1], item.text);
        setText(button.children[2], String(item.number));
        setAttribute(button, "aria-pressed", this.#filter === item.key);
      },
    );
  }

  #choose(key) {
    this.#filter = this.#filter === key ? "" : key;
    for (const tile of this.#tiles.values()) this.#dim(tile);
    this.update();
  }

  #dim(tile) {
    const { state, function: loaded } = tile.shows;
    const shown = !this.#filter || this.#filter === state || this.#filter === `function ${loaded}`;
    tile.classList.toggle("dimmed", !shown);
  }

  /** Update the map; return whether it is complete. Tiles are made when the names of a host's slots have changed. */
  #showMap(slots, hosts, byHost) {
    const lost = new Set(hosts.filter((host) => !host.alive).map((host) => host.name));
    const small = slots.length > SMALL_FROM;
    if (small !== this.#small) for (const tile of this.#tiles.values()) tile.shows = null;
    this.#small = small;
    this.map.classList.toggle("small", small);
    const end = performance.now() + FRAME_MS;
    let isComplete = true;
    reconcile(
      this.map,
      [...byHost],
      ([host]) => host,
      ([host]) => this.#makeHost(host),
      (section, [host, ofHost]) => {
        section.classList.toggle("lost", lost.has(host));
        setText(section.firstChild.lastChild, lost.has(host) ? "lost" : "");
        const names = ofHost.map((slot) => slot.name).join(" ");
        if (section.names === names) return;
        if (performance.now() > end) {
          isComplete = false;
          return;
        }
        section.names = names;
        this.#showCards(section.lastChild, host, ofHost);
      },
    );
    for (const slot of slots) {
      const tile = this.#tiles.get(slot.name);
      if (tile && tile.shows !== slot) this.#updateTile(tile, slot);
    }
    if (!isComplete) requestAnimationFrame(() => this.update());
    else if (this.#tiles.size > slots.length) this.#forgetTiles();
    this.roving.settle();
    return isComplete;
  }

  /** Show the cards of a host, grouped by enclosure; cards and slots are in the order of their links. */
  #showCards(element, host, slots) {
    const cards = [...Map.groupBy(slots, (slot) => slot.card)].map(([name, ofCard]) => ({
      name,
      slots: ofCard.toSorted((a, b) => linksOf(a).place - linksOf(b).place),
      links: linksOf(ofCard[0]),
    }));
    cards.sort((a, b) => a.links.position - b.links.position);
    reconcile(
      element,
      [...Map.groupBy(cards, (card) => card.links.enclosure || `card ${card.name}`)],
      ([name]) => name,
      ([, [{ links }]]) => makeEnclosure(links),
      (enclosure, [, ofEnclosure]) =>
        reconcile(
          enclosure.lastChild,
          ofEnclosure,
          (card) => card.name,
          (card) => makeCard(host, card),
          (shown, card) =>
            reconcile(
              shown.lastChild,
              card.slots,
              (slot) => slot.name,
              (slot) => this.#makeTile(slot),
            ),
        ),
    );
  }

  #forgetTiles() {
    for (const [name, tile] of this.#tiles) if (!tile.isConnected) this.#tiles.delete(name);
  }

  #makeHost(name) {
    return h(
      "section",
      { class: "host", "aria-label": `Host ${name}` },
      h(
        "h3",
        {},
        h("button", { type: "button", class: "plain", data: { host: name } }, name),
        h("span", { class: "note" }),
      ),
      h("div", { class: "cards" }),
    );
  }

  #makeTile(slot) {
    const tile = h("button", { type: "button", tabindex: "-1", data: { uuid: slot.uuid } });
    this.#tiles.set(slot.name, tile);
    return tile;
  }

  #updateTile(tile, slot) {
    const before = tile.shows;
    tile.shows = slot;
    if (before && LOOKS.every((name) => before[name] === slot[name])) return;
    if (before?.function !== slot.function) {
      tile.className = `slot ${functionColours.classOf(slot.function)}`;
      tile.dataset.function = slot.function;
    }
    const { mark, text } = SLOT_STATES[slot.state];
    const draining = slot.drain_requested && slot.state !== "DRAINED";
    const shown = draining ? "‖" : mark;
    if (this.#small) tile.textContent = shown;
    else tile.replaceChildren(h("i", {}, shown), h("span", {}, slot.function || text));
    const words = [slot.name, text, slot.function && `holds ${slot.function}`, draining && "drain requested"];
    setAttribute(tile, "aria-label", words.filter(Boolean).join(", "));
    setAttribute(tile, "data-state", slot.state);
    if (this.#filter) this.#dim(tile);
  }

  #click(event) {
    const target = event.target.closest("button");
    if (target?.dataset.uuid) this.open("slot", target.dataset.uuid);
    else if (target?.dataset.host) this.open("host", target.dataset.host);
  }
}

/** Return how many slots there are of each kind. */
function countsOf(slots, kindOf) {
  const counts = new Map();
  for (const slot of slots) counts.set(kindOf(slot), (counts.get(kindOf(slot)) ?? 0) + 1);
  return counts;
}

/** Return the frame of an enclosure. A card in no enclosure has an invisible frame. */
function makeEnclosure(links) {
  if (!links.enclosure) return h("div", {}, h("div", { class: "cards" }));
  const text = enclosureText(links);
  return h(
    "div",
    { class: `enclosure ${links.topology}`, role: "group", "aria-label": text },
    h("p", { class: "name" }, text),
    h("div", { class: "cards" }),
  );
}

function makeCard(host, { name, slots, links }) {
  const between = slots.length > 1 ? links.between : "none";
  return h(
    "div",
    { class: "card", role: "group", "aria-label": `Card ${name} of ${host}, ${cardText(links)}` },
    h("span", { class: "name", title: cardText(links) }, name),
    h("div", { class: `slots linked-${between}` }),
  );
}

/** The map of the pool: hosts, their cards, and a tile for each slot. */

import { functionColours, SLOT_STATES } from "./colours.js";
import { h, panel, reconcile, setAttribute, setText } from "./dom.js";
import { count, rate } from "./format.js";
import { isEnded, KINDS } from "./pool.js";

/** With more slots than this the tiles are small, without text. */
const SMALL_FROM = 400;

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class PoolView {
  parts = new Set(["slots", "hosts", "work", "functions", "all"]);
  #tiles = new Map();
  #filter = "";

  constructor(pool, open) {
    this.pool = pool;
    this.open = open;
    this.figures = h("dl", { class: "figures", "aria-label": "Summary" });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Show slots of one state or function" });
    this.map = h("div", {
      class: "map",
      on: { keydown: (event) => this.#move(event), click: (event) => this.#click(event) },
    });
    this.others = h("ul", { class: "chips", "aria-label": "Hosts without cards" });
    this.othersTitle = h("h2", {}, "Hosts without cards");
    this.element = h(
      "div",
      { class: "view" },
      this.figures,
      panel("map", "Cards and slots", this.legend, this.map),
      h("section", { class: "panel" }, this.othersTitle, this.others),
    );
  }

  update() {
    const { slots, hosts, forbidden } = this.pool;
    this.#showFigures(slots, hosts);
    if (forbidden.has("slots")) {
      setText(this.map, "Slots are shown to operators only: your roles do not allow to list them.");
      return;
    }
    this.#showLegend(slots);
    this.#showMap(slots, hosts);
    const carrying = new Set(slots.map((slot) => slot.host));
    const others = hosts.filter((host) => !carrying.has(host.name));
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

  #showFigures(slots, hosts) {
    const inState = (state) => slots.filter((slot) => slot.state === state).length;
    const inService = slots.length - inState("FAULTED") - inState("DRAINED");
    const share = inService ? Math.round((100 * inState("BUSY")) / inService) : 0;
    const open = Object.keys(KINDS).map((kind) => [kind, this.pool.work[kind].filter((one) => !isEnded(one)).length]);
    const lost = hosts.filter((host) => !host.alive).length;
    const figures = [
      ["Slots busy", `${inState("BUSY")} of ${inService}`, `${share} %`, ""],
      ["Loading", String(inState("LOADING")), "", ""],
      ["Out of service", String(slots.length - inService), "", inState("FAULTED") ? "bad" : ""],
      ["Hosts alive", `${hosts.length - lost} of ${hosts.length}`, "", lost ? "bad" : ""],
      [
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
      figures,
      ([name]) => name,
      ([name]) => h("div", { class: "figure" }, h("dt", {}, name), h("dd"), h("dd", { class: "note" })),
      (figure, [, value, note, look]) => {
        setText(figure.children[1], value);
        setAttribute(figure.children[1], "class", look);
        setText(figure.children[2], note);
      },
    );
  }

  #showLegend(slots) {
    const states = new Map();
    const functions = new Map();
    for (const slot of slots) {
      states.set(slot.state, (states.get(slot.state) ?? 0) + 1);
      if (slot.function) functions.set(slot.function, (functions.get(slot.function) ?? 0) + 1);
    }
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
    const { state, function: loaded } = tile.dataset;
    const shown = !this.#filter || this.#filter === state || this.#filter === `function ${loaded}`;
    tile.classList.toggle("dimmed", !shown);
  }

  #showMap(slots, hosts) {
    const alive = new Map(hosts.map((host) => [host.name, host.alive]));
    const byHost = Map.groupBy(slots, (slot) => slot.host);
    this.map.classList.toggle("small", slots.length > SMALL_FROM);
    reconcile(
      this.map,
      [...byHost],
      ([host]) => host,
      ([host]) => this.#makeHost(host),
      (section, [host, ofHost]) => {
        section.classList.toggle("lost", alive.get(host) === false);
        setText(section.querySelector(".note"), alive.get(host) === false ? "lost" : "");
        const byCard = [...Map.groupBy(ofHost, (slot) => slot.card)];
        reconcile(
          section.lastChild,
          byCard,
          ([card]) => card,
          ([card]) => makeCard(host, card),
          (element, [, ofCard]) => {
            reconcile(
              element.lastChild,
              ofCard,
              (slot) => slot.name,
              (slot) => this.#makeTile(slot),
              (tile, slot) => this.#updateTile(tile, slot),
            );
          },
        );
      },
    );
    for (const [name, tile] of this.#tiles) if (!tile.isConnected) this.#tiles.delete(name);
    if (!this.map.querySelector("[tabindex='0']")) this.#tiles.values().next().value?.setAttribute("tabindex", "0");
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
    const stamp = `${slot.state} ${slot.function} ${slot.drain_requested}`;
    if (tile.dataset.stamp === stamp) return;
    Object.assign(tile.dataset, { stamp, state: slot.state, function: slot.function });
    tile.className = `slot ${functionColours.classOf(slot.function)}`;
    const { mark, text } = SLOT_STATES[slot.state];
    const draining = slot.drain_requested && slot.state !== "DRAINED";
    tile.replaceChildren(h("i", {}, draining ? "‖" : mark), h("span", {}, slot.function || text));
    const words = [slot.name, text, slot.function && `holds ${slot.function}`, draining && "drain requested"];
    const label = words.filter(Boolean).join(", ");
    tile.setAttribute("aria-label", label);
    tile.title = label;
    this.#dim(tile);
  }

  #click(event) {
    const target = event.target.closest("button");
    if (target?.dataset.uuid) this.open("slot", target.dataset.uuid);
    else if (target?.dataset.host) this.open("host", target.dataset.host);
  }

  /** Arrow keys go from slot to slot; only one of them is a stop of the tab key. */
  #move(event) {
    const tile = event.target.closest(".slot");
    if (!tile) return;
    const tiles = [...this.map.querySelectorAll(".slot")];
    const place = { Home: 0, End: tiles.length - 1 }[event.key] ?? tiles.indexOf(tile) + (STEPS[event.key] ?? 0);
    const next = tiles[place];
    if (!next || next === tile) return;
    event.preventDefault();
    tile.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}

function makeCard(host, card) {
  return h(
    "div",
    { class: "card", role: "group", "aria-label": `Card ${card} of ${host}` },
    h("span", { class: "name" }, card),
    h("div", { class: "slots" }),
  );
}

/** Colours of functions and gangs, and marks of states. A state is never shown by colour alone. */

import { byName } from "./format.js";

const COLOURS = 8;

/** Gives each name one of the colours of the style sheet; a name keeps its colour while the page is open. */
class Palette {
  #numbers = new Map();

  /** Return the class of a name's colour. */
  classOf(name) {
    if (!name) return "hue-none";
    if (!this.#numbers.has(name)) this.#numbers.set(name, this.#numbers.size);
    return `hue-${this.#numbers.get(name) % COLOURS}`;
  }

  /** Give colours to names that are known in advance, in alphabetical order. */
  reserve(names) {
    [...names].sort(byName).forEach((name) => this.classOf(name));
  }
}

export const functionColours = new Palette();
export const gangColours = new Palette();

export const SLOT_STATES = {
  EMPTY: { mark: "", text: "empty" },
  LOADING: { mark: "↻", text: "loading" },
  READY: { mark: "○", text: "ready" },
  BUSY: { mark: "●", text: "busy" },
  FAULTED: { mark: "✕", text: "faulted" },
  DRAINED: { mark: "‖", text: "drained" },
};

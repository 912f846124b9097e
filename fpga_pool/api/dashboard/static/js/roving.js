/** Makes many marks one tab stop: the arrow keys, Home and End move the focus from mark to mark. */

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/**
 * The marks of a picture, in the order of the document. If they are in rows (elements with data-row), the up and down
 * arrows move to the nearest mark of the previous or next row.
 */
export class Roving {
  #element;
  #selector;
  #stop = null;

  constructor(element, selector) {
    this.#element = element;
    this.#selector = selector;
    element.addEventListener("keydown", (event) => this.#move(event));
    element.addEventListener("focusin", ({ target }) => target.matches(selector) && this.#stopAt(target));
  }

  get hasFocus() {
    return this.#stop !== null && this.#stop === document.activeElement;
  }

  /** Choose a new tab stop after marks were replaced: the mark with the same data-key, focused if `hadFocus`. */
  settle(hadFocus = false) {
    if (this.#stop?.isConnected) return;
    const key = this.#stop?.dataset.key;
    const marks = this.#marks();
    const same = key && marks.find((mark) => mark.dataset.key === key);
    this.#stopAt(same || marks[0] || null);
    if (same && hadFocus) same.focus({ preventScroll: true });
  }

  #marks() {
    return [...this.#element.querySelectorAll(this.#selector)];
  }

  #stopAt(mark) {
    if (mark === this.#stop) return;
    this.#stop?.setAttribute("tabindex", "-1");
    this.#stop = mark;
    mark?.setAttribute("tabindex", "0");
  }

  #move(event) {
    const mark = event.target.closest(this.#selector);
    if (!mark) return;
    const next = this.#next(mark, event.key);
    if (!next || next === mark) return;
    event.preventDefault();
    next.focus();
  }

  #next(mark, key) {
    const row = mark.closest("[data-row]");
    if (row && (key === "ArrowUp" || key === "ArrowDown")) return this.#inNextRow(mark, row, STEPS[key]);
    const marks = this.#marks();
    return marks[{ Home: 0, End: marks.length - 1 }[key] ?? marks.indexOf(mark) + (STEPS[key] ?? 0)];
  }

  #inNextRow(mark, row, step) {
    const rows = [...this.#element.querySelectorAll("[data-row]")];
    const there = [...(rows[rows.indexOf(row) + step]?.querySelectorAll(this.#selector) ?? [])];
    const from = leftOf(mark);
    return there.toSorted((a, b) => Math.abs(leftOf(a) - from) - Math.abs(leftOf(b) - from))[0];
  }
}

const leftOf = (mark) => mark.getBoundingClientRect().left;

/** Creates and updates elements. External text is inserted as text nodes and attributes only, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return an HTML element; strings among the children become text. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Return the head of a table. */
export const tableHead = (names) =>
  h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name))));

/** Return a section with a heading; `name` must be unique in the page. */
export const panel = (name, title, ...children) =>
  h(
    "section",
    { class: "panel", "aria-labelledby": `${name}-title` },
    h("h2", { id: `${name}-title` }, title),
    ...children,
  );

/** Return a table with these columns in a region that scrolls; `body` is the tbody with its rows. */
export const scrollingTable = (label, columns, body) =>
  h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, tableHead(columns), body),
  );

/** Return an SVG element. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Change the text of an element only if it differs, to avoid needless layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Change an attribute only if its value differs. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Show items as children of a parent. The children of remaining items are updated, not replaced, and keep the focus.
 *
 * @param {Element} parent
 * @param {Array} items
 * @param {function(item): string} keyOf
 * @param {function(item): Element} make
 * @param {function(Element, item)} update
 */
export function reconcile(parent, items, keyOf, make, update = () => {}) {
  const known = (parent.itemElements ??= new Map());
  const wanted = new Set(items.map(keyOf));
  // Remove children first: otherwise the remaining ones would be moved, and would lose the focus.
  for (const [key, element] of known) {
    if (!wanted.has(key)) {
      element.remove();
      known.delete(key);
    }
  }
  let previous = null;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    if (!element) {
      element = make(item);
      known.set(key, element);
    }
    update(element, item);
    const place = previous ? previous.nextSibling : parent.firstChild;
    if (place !== element) parent.insertBefore(element, place);
    previous = element;
  }
}

/**
 * Make the children of an element equal to those of another one. Nodes that are equal stay, with their selection, focus
 * and listeners. Nodes with different listeners must therefore differ in their attributes.
 */
export function takeChildren(element, other) {
  const known = [...element.childNodes];
  const wanted = [...other.childNodes];
  wanted.forEach((child, place) => {
    const old = known[place];
    if (!old) element.append(child);
    else if (old.isEqualNode(child)) return;
    else if (old.hasChildNodes() && old.cloneNode().isEqualNode(child.cloneNode())) takeChildren(old, child);
    else old.replaceWith(child);
  });
  for (const left of known.slice(wanted.length)) left.remove();
}

/** Return an SVG mark that acts as a button, by mouse and keyboard. By default only `Roving` makes it a tab stop. */
export function markButton(tag, label, activate, properties = {}, ...children) {
  const onKey = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      activate();
    }
  };
  const mark = s(tag, { role: "button", tabindex: "-1", "aria-label": label, ...properties }, ...children);
  mark.addEventListener("click", activate);
  mark.addEventListener("keydown", onKey);
  return mark;
}

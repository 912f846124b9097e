/** Questions to the operator, in the page's one modal dialog. */

import { h } from "./dom.js";

const dialog = () => document.getElementById("dialog");

/**
 * Ask a question; resolve to the text of the field, "" if there is no field, or null if the question was dismissed.
 *
 * @param {object} question
 * @param {string} question.title
 * @param {string} question.text
 * @param {string} question.confirm label of the button that confirms
 * @param {{label: string, type?: string, value?: string}} [question.field]
 */
export function ask({ title, text, confirm, field }) {
  const element = dialog();
  const input = field
    ? h("input", {
        type: field.type ?? "text",
        value: field.value ?? "",
        autocomplete: "off",
        maxlength: field.type ? 65_536 : 255,
      })
    : null;
  return new Promise((resolve) => {
    let answer = null;
    const accept = (event) => {
      event.preventDefault(); // nothing is ever sent by the form itself
      answer = input ? input.value.trim() : "";
      element.close();
    };
    element.replaceChildren(
      h(
        "form",
        { on: { submit: accept } },
        h("h2", { id: "dialog-title" }, title),
        h("p", {}, text),
        field ? h("label", {}, field.label, input) : null,
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", on: { click: () => element.close() } }, "Close"),
          h("button", { type: "submit", class: "primary" }, confirm),
        ),
      ),
    );
    element.addEventListener("close", () => resolve(answer), { once: true });
    element.showModal();
    (input ?? element.querySelector(".primary")).focus();
  });
}

// The one dialog of the page: a title, what it says, and a form whose last button does what it is for.

import { el } from "./dom.js";

const dialog = document.getElementById("dialog");

// act(): does it and may fail, which `wrong` is told.  The dialog stays open until it has been done.
export function openDialog(title, body, { word, kind, act, wrong }) {
  const yes = el("button", { class: kind }, word);
  const form = el(
    "form", { method: "dialog" }, el("h2", {}, title), ...body,
    el("div", { class: "row" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), yes),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      wrong(error);
    } finally {
      yes.disabled = false;
    }
  });
  dialog.setAttribute("aria-label", title);
  dialog.replaceChildren(form);
  dialog.showModal();
}

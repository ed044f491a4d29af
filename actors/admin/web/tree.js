// A tree that is looked through with the pointer or with the arrow keys, as the pattern `tree` of ARIA has it.  What lies below a node
// is asked for when it is opened.

import { el } from "./dom.js";

// node: {key, label (elements of its line), below, children, left (how many of those below are not among them)}; a node whose children
// are not there yet has null for them.  more(key): the node with all of its children.
export function tree(label, nodes, more) {
  const list = el("ul", { class: "tree", role: "tree", "aria-label": label });
  list.append(...nodes.map((node) => item(node, 1, more)));
  list.querySelector("[role=treeitem]")?.setAttribute("tabindex", "0");
  list.addEventListener("keydown", (event) => pressed(list, event));
  list.addEventListener("click", (event) => {
    const line = event.target.closest(".node");
    if (line === null || event.target.closest("a, button")) return;
    focus(list, line.parentElement);
    toggle(line.parentElement);
  });
  return list;
}

function item(node, level, more) {
  const expandable = node.below > 0;
  const one = el(
    "li", { role: "treeitem", tabindex: "-1", "aria-level": level, "aria-expanded": expandable ? "false" : null, "data-there": node.children?.length ?? 0 },
    el("div", { class: "node" }, el("span", { class: "twist", "aria-hidden": "true" }), ...node.label),
  );
  if (!expandable) return one;
  const group = el("ul", { role: "group", hidden: true });
  const filled = (whole) => {
    group.replaceChildren(...whole.children.map((child) => item(child, level + 1, more)));
    if (whole.left > 0) group.append(el("li", { class: "more", role: "none" }, el("button", { type: "button", class: "quiet", onclick: () => ask(true) }, `${whole.left} more`)));
  };
  let asked = false;
  async function ask(all) {
    asked = true;
    const waiting = el("li", { class: "more", role: "none" }, "…");
    if (!all) group.replaceChildren(waiting);
    try {
      filled(await more(node, all));
    } catch (error) {
      asked = false;
      waiting.textContent = error.told ? error.message : "It could not be read.";
      if (!waiting.isConnected) group.append(waiting);
    }
  }
  one.addEventListener("opened", (event) => {
    event.stopPropagation();
    group.hidden = one.getAttribute("aria-expanded") !== "true";
    if (group.hidden || asked) return;
    if (node.children === null) ask(false);
    else {
      asked = true;
      filled(node);
    }
  });
  one.append(group);
  return one;
}

function toggle(one, wanted = one.getAttribute("aria-expanded") !== "true") {
  if (!one.hasAttribute("aria-expanded")) return;
  one.setAttribute("aria-expanded", String(wanted));
  one.dispatchEvent(new CustomEvent("opened"));
}

// Opens what is there already, level by level, as long as so many lines hold it.
export function openSome(list, lines) {
  const waiting = [...list.querySelectorAll(":scope > [role=treeitem]")];
  let shown = waiting.length;
  while (waiting.length) {
    const one = waiting.shift();
    const below = Number(one.dataset.there);
    if (!below || shown + below > lines) continue;
    toggle(one, true);
    shown += below;
    waiting.push(...one.querySelectorAll(":scope > ul > [role=treeitem]"));
  }
}

function focus(list, one) {
  list.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  one.setAttribute("tabindex", "0");
  one.focus({ preventScroll: true });
  one.firstElementChild.scrollIntoView({ block: "nearest" });
}

function pressed(list, event) {
  const one = event.target;
  if (one.getAttribute("role") !== "treeitem" || event.ctrlKey || event.metaKey || event.altKey) return;
  const shown = [...list.querySelectorAll("[role=treeitem]")].filter((each) => each.closest("[hidden]") === null);
  const place = shown.indexOf(one);
  const expanded = one.getAttribute("aria-expanded");
  const go = (to) => to && focus(list, to);
  const keys = {
    ArrowDown: () => go(shown[place + 1]),
    ArrowUp: () => go(shown[place - 1]),
    Home: () => go(shown[0]),
    End: () => go(shown[shown.length - 1]),
    ArrowRight: () => (expanded === "false" ? toggle(one, true) : expanded === "true" && go(one.querySelector("[role=treeitem]"))),
    ArrowLeft: () => (expanded === "true" ? toggle(one, false) : go(one.parentElement.closest("[role=treeitem]"))),
    Enter: () => toggle(one),
    " ": () => toggle(one),
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
}

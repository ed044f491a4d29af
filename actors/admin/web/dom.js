// Elements out of text and other elements.  There is no other way to make one on this page, so what clients have chosen (their
// ids, topics, user names) is text wherever it is shown: nothing here reads HTML, and the policy of the page forbids it besides.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, given = {}, ...children) {
  return filled(document.createElement(tag), given, children);
}

export function svg(tag, given = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), given, children);
}

// given: `on*` are listeners, `style` an object of properties, `data-*` and all others attributes; null and false leave one out.
function filled(node, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

// What clients have named.  Characters that would not be seen, or turn the direction of what follows, are shown as what they are.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export function plain(text) {
  return String(text).replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function name(text) {
  return el("bdi", { class: "name" }, text === "" ? "(empty)" : plain(text));
}

// Puts `children` in the place of what `node` has, and keeps the focus where a control of the same key was.
export function put(node, ...children) {
  const held = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  node.replaceChildren(...children.flat(2).filter((one) => one !== null && one !== undefined && one !== false));
  if (held !== undefined) for (const one of node.querySelectorAll("[data-key]")) if (one.dataset.key === held) one.focus({ preventScroll: true });
}

// Tells those who do not see it.
export function say(text) {
  document.getElementById("said").textContent = text;
}

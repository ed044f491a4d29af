// The frame around the views: which one is shown, the colours, the menu of narrow windows, the key.

import { el, put, say } from "./dom.js";
import { askKey, forgetKey, hasKey, onKey } from "./key.js";
import { VIEWS, viewOf } from "./views.js";
import { watched } from "./watch.js";

const main = document.getElementById("main");
const side = document.querySelector(".side");
const menu = document.querySelector(".menu");
const nav = side.querySelector("nav");
const keyButton = document.querySelector(".key");
let leaving = new AbortController();

// ------------------------------------------------------------------------------------------------ which view

// The address behind the #: a path whose parts are encoded each by itself, and what is asked for.
function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, asked: new URLSearchParams(search) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function show(first = false) {
  leaving.abort();
  leaving = new AbortController();
  const { parts, asked } = route();
  const view = viewOf(parts[0] ?? "");
  document.title = view.title === "Overview" ? "Holdfast" : `${view.title} · Holdfast`;
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view === view.path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  open(false);
  const place = el("div");
  main.replaceChildren(place);
  view.show(place, { rest: parts.slice(1), asked, signal: leaving.signal });
  if (first) return;
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  say(view.title);
}

put(nav, el("ul", {}, VIEWS.filter(({ listed }) => listed).map(({ path, title, apart }) => el(
  "li", { class: apart ? "apart" : null }, el("a", { href: `#/${path}`, "data-view": path }, el("span", {}, title)),
))));
addEventListener("hashchange", () => show());

// ------------------------------------------------------------------------------------------------ menu, search

function open(wanted) {
  side.classList.toggle("open", wanted);
  menu.setAttribute("aria-expanded", String(wanted));
}

menu.addEventListener("click", () => open(!side.classList.contains("open")));
side.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !side.classList.contains("open")) return;
  open(false);
  menu.focus();
});
document.querySelector(".find").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = document.getElementById("find").value;
  if (wanted) location.hash = `#/search?${new URLSearchParams({ q: wanted })}`;
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  if (getComputedStyle(menu).display !== "none") open(true);
  document.getElementById("find").focus();
});

// ------------------------------------------------------------------------------------------------ colours

function coloured(wanted) {
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  try {
    if (wanted === "auto") localStorage.removeItem("holdfast.theme");
    else localStorage.setItem("holdfast.theme", wanted);
  } catch {
    // Storage is switched off: the choice lasts as long as the page.
  }
}

for (const choice of document.querySelectorAll("[name=theme]")) {
  choice.checked = choice.value === (document.documentElement.dataset.theme ?? "auto");
  choice.addEventListener("change", () => coloured(choice.value));
}

// ------------------------------------------------------------------------------------------------ key, alarms

keyButton.addEventListener("click", () => (hasKey() ? forgetKey() : askKey()));
onKey((right, first) => {
  keyButton.textContent = right === "" ? "Read-only · give a key" : `Key: ${right} · forget it`;
  if (right === "write") keyButton.dataset.writing = "";
  else delete keyButton.dataset.writing;
  if (!first) show();
});
watched((alarms) => {
  const link = nav.querySelector('[data-view="alarms"]');
  link.querySelector(".count")?.remove();
  if (alarms) link.append(el("span", { class: "count", "aria-label": `${alarms} alarms` }, String(alarms)));
});

show(true);

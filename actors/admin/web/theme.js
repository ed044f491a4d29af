// The chosen colours, before anything is painted: a classic script in the head, so that nothing flickers.
"use strict";
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("holdfast.theme");
  } catch {
    // Storage is switched off: the choice lasts as long as the page.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}

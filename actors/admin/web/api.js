// Questions to the broker's REST API (docs/rest.md), with the key of this tab when there is one.

import { bearer, refused } from "./key.js";

export const ROWS = 50;
const ANSWERS = { 429: "is busy", 503: "cannot say" };

// told: it is meant for who looks at the page, and one sentence.
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
    this.told = true;
  }
}

// parts: of the path, each as it is; what clients have named may hold anything.
export function path(...parts) {
  if (parts.some((part) => part === "." || part === "..")) {
    throw new ApiError(400, "BAD_REQUEST", "No address can name a client whose id is . or .. ; the command `holdfast clients` can.");
  }
  return `/api/v5/${parts.map(encodeURIComponent).join("/")}`;
}

export async function get(where, asked = {}, signal = undefined) {
  const given = Object.entries(asked).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return (await fetched("GET", given.length ? `${where}?${new URLSearchParams(given)}` : where, signal)).json();
}

export async function change(method, where, signal = undefined) {
  await fetched(method, where, signal);
}

// Whether it is there; null when there is nothing of this name.
export async function find(where, asked, signal) {
  try {
    return await get(where, asked, signal);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

// A page with rows, if there is one soon: what is asked for may be rare, and then pages of all that was looked at are empty.
export async function page(where, asked, signal) {
  let found = await get(where, asked, signal);
  for (let more = 0; more < 20 && !found.data.length && found.meta.hasnext; more += 1) {
    found = await get(where, { ...asked, cursor: found.meta.cursor }, signal);
  }
  return found;
}

async function fetched(method, where, signal) {
  const key = bearer();
  let answer;
  try {
    answer = await fetch(where, { method, signal, cache: "no-store", credentials: "omit", headers: key ? { Authorization: `Bearer ${key}` } : {} });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "AWAY", "The admin process does not answer. It comes back by itself within seconds; `holdfast status` says whether the broker runs.");
  }
  if (answer.ok || (where.startsWith("/health/") && answer.status === 503)) return answer;
  const said = await answer.json().catch(() => ({}));
  const message = said.message ?? `The broker ${ANSWERS[answer.status] ?? "refused this"} (HTTP ${answer.status}).`;
  if (answer.status === 401 && key) refused(key);
  throw new ApiError(answer.status, said.code ?? "", message);
}

// How many alarms there are, for the navigation, whatever is shown beside it.

import { get, path } from "./api.js";
import { NOW_AND_THEN_MS } from "./live.js";
import { poll } from "./poll.js";

export function watched(then) {
  poll(NOW_AND_THEN_MS, new AbortController().signal, async (signal) => then((await get(path("alarms"), {}, signal)).data.length));
}

// Shards: what each of them has, and how much of the disk all of them take.

import { get, path } from "./api.js";
import { el } from "./dom.js";
import { live, NOW_AND_THEN_MS } from "./live.js";
import { absent, facts, head, panel, share, state, table } from "./parts.js";
import { bytes, count, known, span } from "./words.js";

const LEVELS = [["good", "there is room"], ["warn", "above the soft mark of the quota"], ["bad", "full: new messages are refused"]];

export function showShards(place, { signal }) {
  place.append(head("Shards"));
  live(
    place, signal, NOW_AND_THEN_MS,
    async (stop) => {
      const [shards, storage] = await Promise.all([get(path("shards"), { limit: 500 }, stop), get(path("storage"), {}, stop)]);
      return { shards, storage };
    },
    ({ shards, storage }) => {
      const most = Math.max(...shards.data.map((one) => one.messages ?? 0), 1);
      return [
        absent([...new Set([...shards.meta.missing, ...storage.missing])]),
        panel("Shards", null, table("Shards", [
          { head: "Shard", cell: ({ shard, storage: of }) => `${of}/${shard}` },
          { head: "State", cell: ({ up }) => (up ? state("good", "up") : state("bad", "away")) },
          { head: "Site", spare: true, cell: ({ site }) => el("code", {}, site) },
          { head: "Messages", number: true, cell: ({ messages }) => (known(messages) ? [share(messages, most), " ", count(messages)] : "") },
          { head: "On disk", number: true, cell: ({ disk_bytes: size }) => bytes(size) },
          { head: "Generations", number: true, cell: ({ shard }) => count(storage.stores.find((one) => one.shard === shard)?.generations.length) },
          { head: "Sessions away", number: true, cell: ({ sessions_away: away }) => count(away) },
          { head: "Retained", number: true, spare: true, cell: ({ retained }) => count(retained) },
        ], shards.data)),
        panel("Room", null, el("div", { class: "body" }, facts([
          ["All stores together", bytes(storage.bytes)], ["Quota", storage.quota_bytes ? bytes(storage.quota_bytes) : "none"],
          ["Free on the disk", bytes(storage.free_bytes)], ["State", state(...LEVELS[storage.quota_level])], ["Messages are kept for", span(storage.retention_ms)],
        ]))),
      ];
    },
  );
}

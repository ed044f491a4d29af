// What a page does with mqtt.js: connect, subscribe, publish at every QoS, lose its connection and come back; or be refused.
// The address has ?url=ws://...&version=5&wanted=served|refused; the outcome is sent to /outcome of where the page is from.
"use strict";

const asked = new URLSearchParams(location.search);
const url = asked.get("url");
const version = Number(asked.get("version"));
const within = 15000;

function told(outcome) {
  return fetch("/outcome", { method: "POST", body: JSON.stringify(outcome) });
}

function once(emitter, event, why) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${why} within ${within} ms`)), within);
    emitter.once(event, (...rest) => {
      clearTimeout(timer);
      resolve(rest);
    });
  });
}

async function served() {
  const client = mqtt.connect(url, { protocolVersion: version, clientId: `page-${version}-${Date.now()}`, clean: true, reconnectPeriod: 300 });
  const steps = [];
  await once(client, "connect", "CONNACK");
  steps.push("connected");
  await client.subscribeAsync("page/#", { qos: 2 });
  for (const qos of [0, 1, 2]) {
    const came = once(client, "message", `message of QoS ${qos}`);
    await client.publishAsync(`page/${qos}`, `of QoS ${qos}, ${"é".repeat(1000)}`, { qos });
    const [topic, payload, packet] = await came;
    if (topic !== `page/${qos}` || packet.qos !== qos || payload.toString() !== `of QoS ${qos}, ${"é".repeat(1000)}`) {
      throw new Error(`QoS ${qos} came as ${topic}, QoS ${packet.qos}`);
    }
    steps.push(`QoS ${qos}`);
  }
  const again = once(client, "connect", "second CONNACK");
  client.stream.destroy();
  await again;
  const came = once(client, "message", "message after the reconnect");
  await client.publishAsync("page/again", "here", { qos: 1 });
  await came;
  steps.push("reconnected");
  await client.endAsync();
  steps.push("left");
  return steps;
}

async function refused() {
  const socket = new WebSocket(url, "mqtt");
  return new Promise((resolve) => {
    socket.onopen = () => resolve(["opened"]);
    socket.onerror = () => resolve(["refused"]);
  });
}

(asked.get("wanted") === "refused" ? refused() : served()).then(
  (steps) => told({ steps }),
  (error) => told({ steps: [], error: String(error) }),
);

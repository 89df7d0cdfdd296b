// MQTT.js for the interoperability tests; the arguments are those of every client here:
//   subscribe PORT PROTOCOL ID FILTER
//   publish   PORT PROTOCOL ID TOPIC QOS COUNT WORD
//   collect   PORT PROTOCOL ID COUNT
import mqtt from "mqtt";

const [job, port, protocol, id, ...rest] = process.argv.slice(2);
const client = mqtt.connect({
  host: "127.0.0.1",
  port: Number(port),
  clientId: id,
  clean: false,
  protocolVersion: Number(protocol),
  resubscribe: false,
  reconnectPeriod: 0,
  properties: protocol === "5" ? { sessionExpiryInterval: 0xffffffff } : undefined,
});

function fail(error) {
  console.error(String(error));
  process.exit(1);
}
client.on("error", fail);

const connected = new Promise((resolve) => client.once("connect", resolve));
// MQTT.js settles a QoS 2 exchange after it has handed the message over: the end waits for the
// last PUBCOMP or PUBACK to be written.
const collected = new Promise((resolve) => {
  let missing = job === "collect" ? Number(rest[0]) : -1;
  client.on("message", (topic, payload, packet) => {
    console.log(`${packet.qos} ${topic} ${payload}`);
    missing -= 1;
    if (missing === 0) setImmediate(resolve);
  });
});

await connected;
if (job === "subscribe") {
  const granted = await client.subscribeAsync(rest[0], { qos: 2 });
  if (granted[0].qos !== 2) fail(`granted ${granted[0].qos}`);
} else if (job === "publish") {
  const [topic, qos, count, word] = rest;
  const sent = [];
  for (let number = 1; number <= Number(count); number += 1) {
    sent.push(client.publishAsync(topic, `${word} ${number}`, { qos: Number(qos) }));
  }
  await Promise.all(sent);
} else {
  await collected;
}
await client.endAsync();

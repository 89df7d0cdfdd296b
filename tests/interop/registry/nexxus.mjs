// A worker of another transport: the registry as its own document describes it, with the official
// client. Reads commands as lines of JSON, answers each with a line.
//
//   node nexxus.mjs URL PREFIX PARTITIONS
import { createClient } from "redis";
import { createInterface } from "node:readline";

const [url, prefix, partitionsText] = process.argv.slice(2);
const partitions = Number(partitionsText);
const client = createClient({ url });
client.on("error", (error) => {
  console.error(String(error));
  process.exit(1);
});
await client.connect();

const TABLE = Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

function crc32(text) {
  let value = 0xffffffff;
  for (const byte of Buffer.from(text)) value = TABLE[(value ^ byte) & 0xff] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

function channelKey({ appId, userId, model, modelId }) {
  const user = userId ? `:user:${userId}` : "";
  return `app:${appId}${user}:model:${model}${modelId ? `:id:${modelId}` : ""}`;
}

function subscriptionKey(channel, filterId) {
  const key = channelKey(channel);
  const within = filterId ? `:filter:${filterId}` : "";
  return `${prefix}subscription:${key}${within}:partition:${crc32(key) % partitions}`;
}

const actions = {
  async subscribe({ device, channel, filterId, filter }) {
    if (filterId) {
      await client.hSet(`${prefix}filters:${channelKey(channel)}`, filterId, JSON.stringify(filter));
    }
    return client.sAdd(subscriptionKey(channel, filterId), device);
  },
  subscribers: ({ channel, filterId }) => client.sMembers(subscriptionKey(channel, filterId)),
  filters: ({ channel }) => client.hGetAll(`${prefix}filters:${channelKey(channel)}`),
  putDevice: ({ deviceId, fields }) => client.hSet(`${prefix}device:${deviceId}`, fields),
  device: ({ deviceId }) => client.hGetAll(`${prefix}device:${deviceId}`),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { action, ...request } = JSON.parse(line);
  console.log(JSON.stringify(await actions[action](request)));
}
await client.close();

// MQTT 5.0 over a WebSocket, as much of it as a person at a page needs: packets to bytes and back, and a
// client that keeps the promises of QoS 1 and 2. It knows no page.
(() => {
  "use strict";
  const TYPES = ["", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "suback", "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth"];
  // By identifier: name, and how it is written. [MQTT 2.2.2.2]
  const PROPERTIES = {
    1: ["payloadFormat", "u8"], 2: ["messageExpiry", "u32"], 3: ["contentType", "text"], 8: ["responseTopic", "text"],
    9: ["correlationData", "bytes"], 11: ["subscriptionId", "size"], 17: ["sessionExpiry", "u32"], 18: ["assignedClientId", "text"],
    19: ["serverKeepAlive", "u16"], 21: ["authMethod", "text"], 22: ["authData", "bytes"], 23: ["requestProblem", "u8"],
    24: ["willDelay", "u32"], 25: ["requestResponse", "u8"], 26: ["responseInformation", "text"], 28: ["serverReference", "text"],
    31: ["reason", "text"], 33: ["receiveMaximum", "u16"], 34: ["topicAliasMaximum", "u16"], 35: ["topicAlias", "u16"],
    36: ["maximumQos", "u8"], 37: ["retainAvailable", "u8"], 38: ["user", "pair"], 39: ["maximumPacketSize", "u32"],
    40: ["wildcardAvailable", "u8"], 41: ["subscriptionIdAvailable", "u8"], 42: ["sharedAvailable", "u8"],
  };
  const IDS = Object.fromEntries(Object.entries(PROPERTIES).map(([id, [name, kind]]) => [name, [Number(id), kind]]));
  // Those that a client can get. [MQTT 2.4]
  const REASONS = {
    0x04: "disconnect with will", 0x10: "no subscriber", 0x11: "no such subscription", 0x80: "unspecified error", 0x81: "malformed packet",
    0x82: "protocol error", 0x83: "implementation specific error", 0x84: "unsupported protocol version", 0x85: "client identifier not valid",
    0x86: "bad user name or password", 0x87: "not authorized", 0x88: "server unavailable", 0x89: "server busy", 0x8a: "banned",
    0x8b: "server shutting down", 0x8c: "bad authentication method", 0x8d: "keep alive timeout", 0x8e: "session taken over",
    0x8f: "topic filter invalid", 0x90: "topic name invalid", 0x91: "packet identifier in use", 0x92: "packet identifier not found",
    0x93: "receive maximum exceeded", 0x94: "topic alias invalid", 0x95: "packet too large", 0x96: "message rate too high",
    0x97: "quota exceeded", 0x98: "administrative action", 0x99: "payload format invalid", 0x9a: "retain not supported",
    0x9b: "QoS not supported", 0x9c: "use another server", 0x9d: "server moved", 0x9e: "shared subscriptions not supported",
    0x9f: "connection rate exceeded", 0xa0: "maximum connect time", 0xa1: "subscription identifiers not supported", 0xa2: "wildcard subscriptions not supported",
  };
  const reason = (code, properties) => {
    const name = REASONS[code] ?? (code < 0x80 ? "done" : "refused");
    return `${name} (0x${code.toString(16).padStart(2, "0")})${properties?.reason ? `: ${properties.reason}` : ""}`;
  };
  const PACKET_BYTES_MAX = 1 << 20, WINDOW = 200, ANSWER_MS = 15000, IDS_MAX = 65535;

  const encoder = new TextEncoder(), decoder = new TextDecoder("utf-8", { fatal: true });
  class Writer {
    bytes = [];
    u8(value) { this.bytes.push(value & 255); return this; }
    u16(value) { return this.u8(value >> 8).u8(value); }
    u32(value) { return this.u16(value >>> 16).u16(value); }
    raw(bytes) { for (const each of bytes) this.bytes.push(each); return this; }
    bytesOf(bytes) {
      if (bytes.length > 65535) throw new Error("a text or a property has more than 65,535 bytes");
      return this.u16(bytes.length).raw(bytes);
    }
    text(text) { return this.bytesOf(encoder.encode(text)); }
    size(value) {
      if (value > 268435455) throw new Error("the packet is too large for MQTT");
      do { this.u8((value & 127) | (value > 127 ? 128 : 0)); value >>>= 7; } while (value);
      return this;
    }
    properties(given = {}) {
      const inner = new Writer();
      for (const [name, value] of Object.entries(given)) {
        if (value === undefined || value === null) continue;
        const [id, kind] = IDS[name];
        if (kind === "pair") for (const [key, each] of value) inner.u8(id).text(key).text(each);
        else if (kind === "bytes") inner.u8(id).bytesOf(value);
        else inner.u8(id)[kind](value);
      }
      return this.size(inner.bytes.length).raw(inner.bytes);
    }
    packet(type, flags) {
      return new Uint8Array([...new Writer().u8((TYPES.indexOf(type) << 4) | flags).size(this.bytes.length).bytes, ...this.bytes]);
    }
  }
  class Reader {
    constructor(bytes) { this.bytes = bytes; this.at = 0; }
    get left() { return this.bytes.length - this.at; }
    take(count) {
      if (count > this.left) throw new Error("the packet ends too early");
      this.at += count;
      return this.bytes.subarray(this.at - count, this.at);
    }
    u8() { return this.take(1)[0]; }
    u16() { return this.u8() * 256 + this.u8(); }
    u32() { return this.u16() * 65536 + this.u16(); }
    data() { return this.take(this.u16()); }
    text() { return decoder.decode(this.data()); }
    size() {
      let value = 0;
      for (let shift = 0; shift < 28; shift += 7) {
        const byte = this.u8();
        value += (byte & 127) << shift;
        if (byte < 128) return value;
      }
      throw new Error("a length has more than four bytes");
    }
    properties() {
      const inner = new Reader(this.take(this.size())), found = {};
      while (inner.left) {
        const known = PROPERTIES[inner.size()];
        if (!known) throw new Error("an unknown property");
        const [name, kind] = known;
        if (kind === "pair") (found.user ??= []).push([inner.text(), inner.text()]);
        else if (name === "subscriptionId") (found.subscriptionId ??= []).push(inner.size());
        else found[name] = kind === "bytes" ? inner.data() : inner[kind]();
      }
      return found;
    }
  }

  const encode = {
    connect: ({ clientId = "", username = "", password = "", cleanStart = true, keepAlive = 30, properties, will }) => {
      const flags = (cleanStart ? 2 : 0) | (username ? 128 : 0) | (password ? 64 : 0) | (will ? 4 | (will.qos << 3) | (will.retain ? 32 : 0) : 0);
      const writer = new Writer().text("MQTT").u8(5).u8(flags).u16(keepAlive).properties(properties).text(clientId);
      if (will) writer.properties(will.properties).text(will.topic).bytesOf(will.payload);
      if (username) writer.text(username);
      if (password) writer.text(password);
      return writer.packet("connect", 0);
    },
    publish: ({ topic, payload, qos = 0, retain = false, dup = false, id, properties }) => {
      const writer = new Writer().text(topic);
      if (qos) writer.u16(id);
      return writer.properties(properties).raw(payload).packet("publish", (dup ? 8 : 0) | (qos << 1) | (retain ? 1 : 0));
    },
    subscribe: ({ id, filters, properties }) => {
      const writer = new Writer().u16(id).properties(properties);
      for (const each of filters) {
        writer.text(each.filter).u8(each.qos | (each.noLocal ? 4 : 0) | (each.retainAsPublished ? 8 : 0) | ((each.retainHandling ?? 0) << 4));
      }
      return writer.packet("subscribe", 2);
    },
    unsubscribe: ({ id, filters }) => {
      const writer = new Writer().u16(id).properties();
      for (const each of filters) writer.text(each);
      return writer.packet("unsubscribe", 2);
    },
    answer: (type, id, code = 0) => {
      const writer = new Writer().u16(id);
      if (code) writer.u8(code);
      return writer.packet(type, type === "pubrel" ? 2 : 0);
    },
    pingreq: () => new Writer().packet("pingreq", 0),
    disconnect: (code = 0) => (code ? new Writer().u8(code) : new Writer()).packet("disconnect", 0),
  };

  const decodeBody = (type, flags, body) => {
    const packet = { type };
    if (type === "connack") { packet.sessionPresent = Boolean(body.u8() & 1); packet.code = body.u8(); packet.properties = body.properties(); }
    else if (type === "publish") {
      Object.assign(packet, { dup: Boolean(flags & 8), qos: (flags >> 1) & 3, retain: Boolean(flags & 1), topic: body.text() });
      if (packet.qos === 3) throw new Error("QoS 3");
      if (packet.qos) packet.id = body.u16();
      packet.properties = body.properties();
      packet.payload = body.take(body.left);
    } else if (type === "suback" || type === "unsuback") { packet.id = body.u16(); packet.properties = body.properties(); packet.codes = [...body.take(body.left)]; }
    else if (type.startsWith("pub")) { packet.id = body.u16(); packet.code = body.left ? body.u8() : 0; packet.properties = body.left ? body.properties() : {}; }
    else if (type === "disconnect") { packet.code = body.left ? body.u8() : 0; packet.properties = body.left ? body.properties() : {}; }
    else if (type !== "pingresp") throw new Error(`a server does not send ${type}`);
    return packet;
  };
  // Bytes in any pieces to whole packets.
  class Decoder {
    kept = new Uint8Array(0);
    feed(bytes) {
      const all = new Uint8Array(this.kept.length + bytes.length);
      all.set(this.kept);
      all.set(bytes, this.kept.length);
      const packets = [];
      let at = 0;
      for (;;) {
        let length = 0, head = at + 1, shift = 0, isWhole = false;
        while (head < all.length && !isWhole) {
          if (shift > 21) throw new Error("a length has more than four bytes");
          length += (all[head] & 127) << shift;
          shift += 7;
          isWhole = all[head] < 128;
          head += 1;
        }
        if (isWhole && length > PACKET_BYTES_MAX) throw new Error("a packet larger than was agreed");
        if (!isWhole || head + length > all.length) break;
        packets.push(decodeBody(TYPES[all[at] >> 4], all[at] & 15, new Reader(all.subarray(head, head + length))));
        at = head + length;
      }
      this.kept = all.slice(at);
      return packets;
    }
  }

  // One connection. `on` has message(packet) and closed(text); what is asked of it is a promise.
  class Client {
    constructor(on) { this.on = on; this.waiting = new Map(); this.received = new Set(); this.lastId = 0; this.decoder = new Decoder(); this.isOver = false; }
    connect(url, options) {
      this.socket = new WebSocket(url, "mqtt");
      this.socket.binaryType = "arraybuffer";
      const properties = { receiveMaximum: WINDOW, maximumPacketSize: PACKET_BYTES_MAX, ...options.properties };
      const keepAlive = 30;
      this.socket.onopen = () => {
        try { this.send(encode.connect({ keepAlive, ...options, properties })); } catch (error) { this.end(error.message); }
      };
      this.socket.onmessage = (event) => {
        try { for (const packet of this.decoder.feed(new Uint8Array(event.data))) this.take(packet); } catch (error) { this.send(encode.disconnect(0x81)); this.end(`the broker sent what is no MQTT: ${error.message}`); }
      };
      // A browser does not say why: refused, no such path, an origin that is not let in.
      this.socket.onclose = () => this.end(this.opened ? "the connection was closed" : "no connection: the listener cannot be reached from here, or does not let this page in (listeners.ws.origins)");
      return this.wait("connack").then((packet) => {
        if (packet.code) throw new Error(reason(packet.code, packet.properties));
        this.opened = true;
        const every = packet.properties.serverKeepAlive ?? keepAlive;
        if (every) this.pinging = setInterval(() => this.ping(), every * 750);
        return packet;
      }).catch((error) => { this.end(error.message); throw error; });
    }
    subscribe(filters, properties) { return this.ask("suback", (id) => encode.subscribe({ id, filters, properties })); }
    unsubscribe(filters) { return this.ask("unsuback", (id) => encode.unsubscribe({ id, filters })); }
    // Resolves with what acknowledges it: nothing at QoS 0, PUBACK or PUBCOMP, or a PUBREC that refuses.
    async publish(message) {
      if (!message.qos) { this.send(encode.publish(message)); return null; }
      const id = this.nextId();
      const first = await this.ask(message.qos === 1 ? "puback" : "pubrec", () => encode.publish({ ...message, id }), id);
      if (message.qos === 1 || first.code >= 0x80) return first;
      return this.ask("pubcomp", () => encode.answer("pubrel", id), id);
    }
    disconnect() {
      if (this.isOver) return;
      if (this.opened) this.send(encode.disconnect());
      this.end("disconnected");
    }

    nextId() {
      for (let tried = 0; tried < IDS_MAX; tried += 1) {
        this.lastId = this.lastId % IDS_MAX + 1;
        if (![...this.waiting.keys()].some((key) => key.endsWith(` ${this.lastId}`))) return this.lastId;
      }
      throw new Error("no packet identifier is left");
    }
    ask(answer, packet, id = this.nextId()) {
      const found = this.wait(`${answer} ${id}`);
      try { this.send(packet(id)); } catch (error) { this.settle(`${answer} ${id}`)?.reject(error); }
      return found;
    }
    wait(key) {
      if (this.isOver) return Promise.reject(new Error("not connected"));
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => { this.waiting.delete(key); reject(new Error("the broker does not answer")); }, ANSWER_MS);
        this.waiting.set(key, { resolve, reject, timer });
      });
    }
    settle(key) {
      const found = this.waiting.get(key);
      if (found) { this.waiting.delete(key); clearTimeout(found.timer); }
      return found;
    }
    send(bytes) {
      if (this.socket?.readyState !== WebSocket.OPEN) throw new Error("not connected");
      this.socket.send(bytes);
    }
    ping() {
      if (this.unanswered) { this.end("the broker does not answer"); return; }
      this.unanswered = true;
      this.send(encode.pingreq());
    }
    take(packet) {
      if (packet.type === "publish") {
        if (packet.qos === 2) {
          // It is given on once, however often it comes. [MQTT 4.3.3]
          if (!this.received.has(packet.id)) { this.received.add(packet.id); this.on.message(packet); }
          this.send(encode.answer("pubrec", packet.id));
          return;
        }
        this.on.message(packet);
        if (packet.qos) this.send(encode.answer("puback", packet.id));
      } else if (packet.type === "pubrel") {
        const isKnown = this.received.delete(packet.id);
        this.send(encode.answer("pubcomp", packet.id, isKnown ? 0 : 0x92));
      } else if (packet.type === "pingresp") this.unanswered = false;
      else if (packet.type === "disconnect") this.end(reason(packet.code, packet.properties));
      else {
        let found = this.settle(packet.id ? `${packet.type} ${packet.id}` : packet.type);
        // A PUBREC that is not awaited belongs to a message of before. [MQTT 4.4]
        if (found) found.resolve(packet);
        else if (packet.type === "pubrec" && packet.code < 0x80) this.send(encode.answer("pubrel", packet.id, 0x92));
      }
    }
    end(text) {
      if (this.isOver) return;
      this.isOver = true;
      clearInterval(this.pinging);
      for (const key of [...this.waiting.keys()]) this.settle(key).reject(new Error(text));
      this.socket?.close();
      this.on.closed(text);
    }
  }

  globalThis.perdureMqtt = { encode, Decoder, Client, reason };
})();

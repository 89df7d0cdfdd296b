// One packet of each kind, with all that it can say; and one of them in pieces.
() => {
    const { encode, Decoder } = perdureMqtt;
    const text = (value) => new TextEncoder().encode(value);
    const user = [["a", "1"], ["a", "ä"]];
    const packets = [
        encode.connect({ clientId: "c", username: "u", password: "p", cleanStart: false, keepAlive: 7,
            properties: { sessionExpiry: 4294967295, receiveMaximum: 5, user },
            will: { topic: "w", payload: text("gone"), qos: 2, retain: true, properties: { willDelay: 3 } } }),
        encode.publish({ topic: "t/ä", payload: text("x".repeat(20000)), qos: 2, retain: true, dup: true, id: 65535,
            properties: { messageExpiry: 1, contentType: "c", responseTopic: "r", correlationData: text("k"), user } }),
        encode.publish({ topic: "t", payload: text("") }),
        encode.subscribe({ id: 1, filters: [{ filter: "a/#", qos: 2, noLocal: true, retainAsPublished: true, retainHandling: 2 }], properties: { user } }),
        encode.unsubscribe({ id: 2, filters: ["a/#", "b"] }),
        encode.answer("pubrel", 3), encode.answer("pubcomp", 4, 0x92), encode.pingreq(), encode.disconnect(4),
    ];
    // What comes in pieces is what came at once.
    const decoder = new Decoder();
    const pieces = [...packets[1]].flatMap((byte) => decoder.feed(new Uint8Array([byte])));
    return { packets: packets.map((each) => [...each]), pieces: pieces.map((each) => [each.topic, each.payload.length, each.id, each.properties.user]) };
}

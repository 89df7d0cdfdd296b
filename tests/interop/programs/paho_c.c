/* Paho C for the interoperability tests; the arguments are those of every client here:
 *   subscribe PORT PROTOCOL ID FILTER
 *   publish   PORT PROTOCOL ID TOPIC QOS COUNT WORD
 *   collect   PORT PROTOCOL ID COUNT
 */
#include <MQTTClient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 15000 };

static void check(int code, const char *what) {
    if (code != MQTTCLIENT_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, code);
        exit(1);
    }
}

static void connect_durably(MQTTClient client, int protocol) {
    if (protocol == 5) {
        MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer5;
        MQTTProperties properties = MQTTProperties_initializer;
        MQTTProperty expiry = {.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL};
        expiry.value.integer4 = 0xFFFFFFFF;
        MQTTProperties_add(&properties, &expiry);
        options.cleanstart = 0;
        MQTTResponse response = MQTTClient_connect5(client, &options, &properties, NULL);
        check(response.reasonCode, "connect");
        MQTTResponse_free(response);
        MQTTProperties_free(&properties);
    } else {
        MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
        options.cleansession = 0;
        options.MQTTVersion = MQTTVERSION_3_1_1;
        check(MQTTClient_connect(client, &options), "connect");
    }
}

static void subscribe(MQTTClient client, int protocol, const char *filter) {
    if (protocol == 5) {
        MQTTResponse response = MQTTClient_subscribe5(client, filter, 2, NULL, NULL);
        check(response.reasonCode == 2 ? 0 : 1, "subscribe");
        MQTTResponse_free(response);
    } else {
        check(MQTTClient_subscribe(client, filter, 2), "subscribe");
    }
}

static void publish(MQTTClient client, int protocol, char **arguments) {
    int qos = atoi(arguments[1]), count = atoi(arguments[2]);
    char payload[128];
    MQTTClient_deliveryToken token = 0;
    for (int number = 1; number <= count; number++) {
        int length = snprintf(payload, sizeof payload, "%s %d", arguments[3], number);
        if (protocol == 5) {
            MQTTResponse response = MQTTClient_publish5(
                client, arguments[0], length, payload, qos, 0, NULL, &token);
            check(response.reasonCode, "publish");
            MQTTResponse_free(response);
        } else {
            check(MQTTClient_publish(client, arguments[0], length, payload, qos, 0, &token),
                  "publish");
        }
        check(MQTTClient_waitForCompletion(client, token, TIMEOUT_MS), "acknowledgement");
    }
}

/* Messages come on the library's own thread: it acknowledges in the background. */
static int missing;

static int arrived(void *context, char *topic, int topic_length, MQTTClient_message *message) {
    (void)context;
    (void)topic_length;
    printf("%d %s %.*s\n", message->qos, topic, message->payloadlen, (char *)message->payload);
    MQTTClient_freeMessage(&message);
    MQTTClient_free(topic);
    __atomic_sub_fetch(&missing, 1, __ATOMIC_SEQ_CST);
    return 1;
}

int main(int count, char **arguments) {
    if (count < 6) return 64;
    const char *job = arguments[1];
    int protocol = atoi(arguments[3]);
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%s", arguments[2]);
    MQTTClient client;
    MQTTClient_createOptions create = MQTTClient_createOptions_initializer;
    create.MQTTVersion = protocol == 5 ? MQTTVERSION_5 : MQTTVERSION_3_1_1;
    check(MQTTClient_createWithOptions(&client, uri, arguments[4], MQTTCLIENT_PERSISTENCE_NONE,
                                       NULL, &create), "create");
    int collecting = strcmp(job, "collect") == 0;
    if (collecting) {
        missing = atoi(arguments[5]);
        check(MQTTClient_setCallbacks(client, NULL, NULL, arrived, NULL), "callbacks");
    }
    connect_durably(client, protocol);
    if (strcmp(job, "subscribe") == 0) subscribe(client, protocol, arguments[5]);
    if (strcmp(job, "publish") == 0) publish(client, protocol, arguments + 5);
    for (int waited = 0; collecting && waited < TIMEOUT_MS; waited += 10) {
        if (__atomic_load_n(&missing, __ATOMIC_SEQ_CST) <= 0) break;
        usleep(10000);
    }
    fflush(stdout);
    check(MQTTClient_disconnect(client, 1000), "disconnect");
    MQTTClient_destroy(&client);
    return 0;
}

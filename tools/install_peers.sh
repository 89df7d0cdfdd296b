#!/usr/bin/env bash
# Install the third-party brokers and clients that interoperability tests talk to. Each is
# optional: a test whose client is missing is skipped and says so.
set -euo pipefail

declare -A packages=(
    [mosquitto]=mosquitto
    [redis-server]=redis-server
    [mosquitto_sub]=mosquitto-clients
    [nats-server]=nats-server
    [rabbitmq-server]=rabbitmq-server
    [node]=nodejs
    [npm]=npm
    [cc]=gcc
    [java]=openjdk-17-jre-headless
    [mvn]=maven
    [chromium]=chromium
    [slapd]=slapd
)
missing=()
for command in "${!packages[@]}"; do
    command -v "$command" >/dev/null || [ -x "/usr/sbin/$command" ] || missing+=("${packages[$command]}")
done
# PostgreSQL keeps its programs out of PATH where several versions may stand side by side.
command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
# Paho C is a library; its header says whether it is here.
[ -e /usr/include/MQTTClient.h ] || missing+=(libpaho-mqtt-dev)

if [ ${#missing[@]} -eq 0 ]; then
    echo "peers: all here"
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "peers: not installed, their tests will be skipped: ${missing[*]}"
else
    echo "peers: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || echo "peers: the package lists could not be refreshed"
    for package in "${missing[@]}"; do
        # One at a time: one unknown package must not cost the others.
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 \
            && echo "peers: installed $package" \
            || echo "peers: $package is not available here, its tests will be skipped"
    done
    # A fresh package may have started a broker of its own, on the MQTT port or another.
    for service in mosquitto nats-server rabbitmq-server redis-server; do
        case " ${missing[*]} " in
            *" $service "*)
                ! command -v service >/dev/null || service "$service" stop >/dev/null 2>&1 || true
                ;;
        esac
    done
fi

# MQTT.js, by its own lock file.
node_client="$(dirname "$0")/../tests/interop/node"
if ! command -v npm >/dev/null; then
    echo "peers: no npm, the tests of MQTT.js will be skipped"
elif [ ! -d "$node_client/node_modules/mqtt" ]; then
    echo "peers: installing MQTT.js"
    npm ci --prefix "$node_client" --no-audit --no-fund --silent \
        || echo "peers: MQTT.js is not available here, its tests will be skipped"
fi

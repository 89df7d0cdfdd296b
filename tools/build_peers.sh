#!/usr/bin/env bash
# Build the brokers that no system has packages for, each with the tools of its own language. A
# tool that is missing costs its broker only: comparisons are made without it and say so.
set -euo pipefail

if command -v rumqttd >/dev/null || [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/rumqttd" ]; then
    echo "peers: rumqttd is here"
elif command -v cargo >/dev/null; then
    echo "peers: building rumqttd (some minutes)"
    # Not --locked: a dependency as it was locked does not compile with Rust 1.95.
    cargo install --quiet rumqttd --version 0.20.0
else
    echo "peers: no cargo, comparisons are made without rumqttd"
fi

if command -v mochi >/dev/null || [ -x "${GOBIN:-${GOPATH:-$HOME/go}/bin}/mochi" ]; then
    echo "peers: mochi is here"
elif command -v go >/dev/null; then
    echo "peers: building mochi"
    folder=${GOBIN:-$(go env GOPATH)/bin}
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    # The module's program that reads a configuration file; Go names it after its folder.
    GOBIN=$scratch go install github.com/mochi-mqtt/server/v2/cmd/docker@v2.7.9
    mkdir -p "$folder"
    mv "$scratch/docker" "$folder/mochi"
else
    echo "peers: no go, comparisons are made without mochi"
fi

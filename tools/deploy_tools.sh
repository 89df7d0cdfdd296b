#!/usr/bin/env bash
# Build what checks deploy/: helm and promtool (Go) into build/tools/bin, and the schemas of Compose and
# Kubernetes into the virtual environment. Each is optional: its tests are left out without it.
set -uo pipefail
venv=$1
tools=$(pwd)/build/tools
mkdir -p "$tools/bin"
failed=0

"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r requirements/deploy.txt || failed=1
if ! command -v mmdebstrap >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get install -y -qq mmdebstrap || { apt-get update -qq && apt-get install -y -qq mmdebstrap; }; } \
        >/dev/null 2>&1 || failed=1
fi
if ! command -v go >/dev/null; then
    echo "deploy-tools: no Go: helm and promtool are not built" >&2
    exit 1
fi
if [ ! -x "$tools/bin/helm" ]; then
    GOBIN=$tools/bin go install helm.sh/helm/v3/cmd/helm@v3.22.0 || failed=1
fi
if [ ! -x "$tools/bin/promtool" ]; then
    # In a module of its own: promtool's names a commit of one dependency that is not everywhere to be had.
    work=$(mktemp -d)
    (
        cd "$work" &&
            printf '//go:build tools\npackage tools\nimport _ "github.com/prometheus/prometheus/cmd/promtool"\n' >tools.go &&
            go mod init tools &&
            go mod edit -require github.com/prometheus/prometheus@v0.316.0 \
                -replace github.com/hashicorp/nomad/api=github.com/hashicorp/nomad/api@v0.0.0-20241218080744-e3ac00f30eec &&
            go mod tidy &&
            go build -mod=mod -o "$tools/bin/promtool" github.com/prometheus/prometheus/cmd/promtool
    ) >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; failed=1; }
    rm -rf "$work"
fi
echo "deploy-tools: $(cd "$tools/bin" && echo *)"
exit $failed

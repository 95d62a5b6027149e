#!/bin/sh
# Brings git and a full Python 3 into the image where they are missing, then hands over to identity.py.
# Runs as root at build time, with any POSIX shell (busybox too). A line that starts with "kortix-refused:"
# says why the image cannot carry a sandbox; the builder shows it.
set -eu

full_python() {
    # python3-minimal has neither json nor asyncio.
    "$1" -c 'import sys, json, asyncio, pty, selectors; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1
}

missing=""
command -v git >/dev/null 2>&1 || missing="git"
python=$(command -v python3 2>/dev/null || true)
if [ -z "$python" ] || ! full_python "$python"; then
    missing="$missing python3"
fi

if [ -n "$missing" ]; then
    if command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates $missing
        rm -rf /var/lib/apt/lists/*
    elif command -v apk >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        apk add --no-cache ca-certificates $missing
    elif command -v dnf >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        dnf install -y --setopt=install_weak_deps=False $missing && dnf clean all
    elif command -v microdnf >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        microdnf install -y --setopt=install_weak_deps=0 $missing && microdnf clean all
    else
        echo "kortix-refused: it lacks $missing, and has no apt-get, apk or dnf to install it with."
        exit 1
    fi
fi

python=$(command -v python3 2>/dev/null || true)
# A tool chain in /usr/local may come first in PATH and be too old; the distribution's own one will do.
for candidate in "$python" /usr/bin/python3 /usr/local/bin/python3; do
    if [ -n "$candidate" ] && full_python "$candidate"; then
        mkdir -p /opt/kortix/bin
        ln -sf "$candidate" /opt/kortix/bin/python3
        if command -v update-ca-certificates >/dev/null 2>&1; then
            update-ca-certificates >/dev/null 2>&1
        fi
        exec "$candidate" -I /opt/kortix/build/identity.py
    fi
done
echo "kortix-refused: it has no complete Python 3.9 or newer."
exit 1

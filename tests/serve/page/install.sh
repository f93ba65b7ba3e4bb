#!/bin/sh
# What the tests of the page need beside Python: a browser, and axe-core, which finds what is not accessible.
set -e

if ! command -v chromium >/dev/null; then
    as_root=$([ "$(id -u)" = 0 ] || echo "sudo -n")
    if ! command -v apt-get >/dev/null || ! $as_root true 2>/dev/null; then
        echo "The page cannot be tested: install Chromium, so that 'chromium' is a command." >&2
        exit 1
    fi
    $as_root apt-get update
    $as_root apt-get install -y --no-install-recommends chromium
fi

if ! command -v npm >/dev/null; then
    echo "The page cannot be tested: install npm, by which axe-core is fetched." >&2
    exit 1
fi
mkdir -p .browser
npm install --silent --no-fund --no-audit --prefix .browser axe-core@4.14.1

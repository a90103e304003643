#!/bin/sh
# Starts a whole cluster on this computer: start-all.sh [--masters N] [--workers N] [OPTION ...]
set -eu
exec "$(dirname -- "$(readlink -f -- "$0")")/orcaflow" server start standalone-server "$@"

#!/bin/sh
# Stops every daemon of this ORCAFLOW_HOME: stop-all.sh [--now]
set -eu
exec "$(dirname -- "$(readlink -f -- "$0")")/orcaflow" server stop standalone-server "$@"

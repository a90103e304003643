#!/bin/sh
# Starts, stops and shows daemons:
#   orcaflow-daemon.sh start|stop|restart|status NAME [--port N] [--groups A,B] [--reserved] [--slots N] [--without api-server] [--now]
# NAME: standalone-server, master-server, worker-server, api-server, zookeeper or postgres.
set -eu
case "${1:-}" in
start | stop | restart | status) ;;
*)
    printf 'usage: %s start|stop|restart|status NAME [OPTION ...]\n' "$(basename -- "$0")" >&2
    printf 'NAME: standalone-server, master-server, worker-server, api-server, zookeeper or postgres\n' >&2
    exit 2
    ;;
esac
exec "$(dirname -- "$(readlink -f -- "$0")")/orcaflow" server "$@"

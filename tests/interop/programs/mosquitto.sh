#!/usr/bin/env bash
# mosquitto_pub and mosquitto_sub; the arguments are those of every client here:
#   subscribe PORT PROTOCOL ID FILTER
#   publish   PORT PROTOCOL ID TOPIC QOS COUNT WORD
#   collect   PORT PROTOCOL ID COUNT
set -euo pipefail
job=$1
id=$4
session=(-h 127.0.0.1 -p "$2" -i "$id" -c)
if [ "$3" = 5 ]; then session+=(-V 5 -x 4294967295); else session+=(-V 311); fi
shift 4
case $job in
    subscribe) mosquitto_sub "${session[@]}" -q 2 -t "$1" -E ;;
    publish)
        for number in $(seq "$3"); do echo "$4 $number"; done \
            | mosquitto_pub "${session[@]}" -t "$1" -q "$2" -l
        ;;
    # It subscribes each time; the filter is the one that it has.
    collect) mosquitto_sub "${session[@]}" -q 2 -t "interop/$id/#" -C "$1" -W 100 -F '%q %t %p' ;;
esac

#!/usr/bin/env bash
# Runs a sweep several times, one after the other, and puts the rows of all into one CSV.
#
# usage: BIN=PROGRAMS OUT=FOLDER ROWS=FILE sweep_rows.sh TIMES SWEEP [OPTION...]    options of longhaul sweep
set -euo pipefail

times=$1
shift
for ((repeat = 1; repeat <= times; ++repeat)); do
  "$BIN/longhaul" sweep "$@" --out "$OUT/$repeat"
  if ((repeat == 1)); then head -n 1 "$OUT/1/results.csv" > "$ROWS"; fi
  tail -n +2 "$OUT/$repeat/results.csv" >> "$ROWS"
done

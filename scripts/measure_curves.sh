#!/bin/sh
# Measures the committed tables of docs/curves again (a few minutes, one thread) and draws their figures.
# measure_curves.sh [VARIANTS [FOLDER]]
set -eu
variants=${1:-build/release/bench/variants}
folder=${2:-docs/curves}
export OMP_NUM_THREADS=1 REGARD_THREADS=1

# measure TABLE METHOD...: one row a length, all methods in turn.
measure() {
  table=$folder/$1.tsv
  shift
  for length in 512 1024 2048 4096 8192 16384; do
    "$variants" times "$length" "$@" > "$table.part"
    if [ "$length" = 512 ]; then cp "$table.part" "$table"; else tail -n 1 "$table.part" >> "$table"; fi
  done
  rm "$table.part"
}

mkdir -p "$folder"
"$variants" errors "$folder" models/phonemes LICENSE
measure times-full full longformer bigbird linear performer linformer reformer
measure times-causal causal window256 strided128 fixed128 linear_causal performer_causal recurrence
"$variants" draw "$folder"

#!/bin/sh
# Draws the committed pictures again from the committed model.
set -eu
regard=${1:-build/release/regard}
mkdir -p docs/pictures
"$regard" view thought --kind cross --layer 2 --format svg -o docs/pictures/thought.svg
"$regard" view thought --kind cross --layer 2 --format png -o docs/pictures/thought.png
"$regard" view thought --kind cross --head all --inches 6.75 --format svg -o docs/pictures/thought-heads.svg
"$regard" view thought --kind cross --head all --inches 6.75 --format png -o docs/pictures/thought-heads.png
# Where a model of pictures read each character of a drawn line.
"$regard" picture regard7 --font 'DejaVu Serif' --distortion 0.7 -o docs/pictures/regard7-line.png > /dev/null
"$regard" view docs/pictures/regard7-line.png --layer 1 -o docs/pictures/regard7.svg
"$regard" view docs/pictures/regard7-line.png --layer 1 -o docs/pictures/regard7.png

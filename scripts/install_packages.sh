#!/bin/sh
# Installs what building, testing and drawing need, through apt on Debian 12.
# Asks for nothing; does nothing when everything is there already. Further
# packages may be named as arguments.
set -eu

packages="
  build-essential cmake ninja-build pkg-config python3
  libhwy-dev libdnnl-dev
  libpango1.0-dev libcairo2-dev libutf8proc-dev
  libcli11-dev libfmt-dev nlohmann-json3-dev
  libgtest-dev
  fonts-dejavu-core fonts-wqy-microhei
  $*
"

missing=""
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = "installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
run=""
[ "$(id -u)" = 0 ] || run="sudo"
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq
$run apt-get install -y -qq --no-install-recommends $missing

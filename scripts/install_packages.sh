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

# A line for each architecture that a package is there for.
installed() {
  dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

missing=""
for package in $packages; do
  installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

# What sudo runs sees nothing of this environment: `env` behind it sets its own.
run="env DEBIAN_FRONTEND=noninteractive"
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "install_packages: no sudo here: run as root: apt-get install$missing" >&2
    exit 1
  fi
  run="sudo $run"
fi

echo "installing:$missing"
# A machine that has just started may be busy with updates of its own: wait for them.
$run apt-get update -qq -o Acquire::Retries=3
$run apt-get install -y -qq --no-install-recommends -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 $missing

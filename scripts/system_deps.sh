#!/usr/bin/env bash
# Installs what deploy/debian-packages.txt names and this machine lacks.
#
# A package counts as there when its commands are, whoever brought them (another distribution of node, say).
# No service is started, and none that was here before is touched: only what this run installed is kept from starting.
# What could not be installed is printed, one line, and is no failure: the tests say what they need of it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Debian keeps servers in /usr/sbin, which is not on everybody's PATH.
export PATH="$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive

missing_packages() {
    sed -n 's/^\([a-z0-9][a-z0-9+.-]*\)[[:space:]]*#[^:]*:\(.*\)$/\1 \2/p' deploy/debian-packages.txt |
        while read -r package commands; do
            for command in $commands; do
                command -v "$command" >/dev/null || { echo "$package"; break; }
            done
        done
}

mapfile -t wanted < <(missing_packages)
if [ "${#wanted[@]}" -eq 0 ]; then
    echo "system-deps: all there"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    echo "system-deps: could not be installed: ${wanted[*]} (needs apt-get and root)"
    exit 0
fi

# invoke-rc.d and deb-systemd-invoke ask this script before they start a service; 101 means no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null && "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi

apt() { "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=120 -qq "$@" </dev/null; }
apt update || echo "system-deps: apt-get update failed; trying with the lists there are"
if ! apt install -y --no-install-recommends "${wanted[@]}" >/dev/null; then
    for package in "${wanted[@]}"; do
        apt install -y --no-install-recommends "$package" >/dev/null || true
    done
fi

# The packages of mosquitto, etcd, prometheus and haproxy also ask to be started at the next boot. That is the owner's decision, not ours.
if command -v systemctl >/dev/null && [ -d /run/systemd/system ]; then
    for package in "${wanted[@]}"; do
        case "$package" in
            mosquitto) "${as_root[@]}" systemctl disable --quiet mosquitto.service 2>/dev/null ;;
            etcd-server) "${as_root[@]}" systemctl disable --quiet etcd.service 2>/dev/null ;;
            prometheus) "${as_root[@]}" systemctl disable --quiet prometheus.service 2>/dev/null ;;
            haproxy) "${as_root[@]}" systemctl disable --quiet haproxy.service 2>/dev/null ;;
        esac
    done
fi

mapfile -t left < <(missing_packages)
if [ "${#left[@]}" -eq 0 ]; then
    echo "system-deps: installed ${wanted[*]}"
else
    echo "system-deps: could not be installed: ${left[*]}"
fi

#!/bin/sh
# Installs, where they are missing, the Debian packages that a local node needs. Root only, Debian 12 or later.
#
#   containerd, runc              run the containers
#   containernetworking-plugins   give them addresses
#   iptables, conntrack           kube-proxy's tools: addresses of Services
#   iproute2                      the cable between the machine and the node
#   mount, util-linux             mount, unshare, nsenter, setpriv: the namespaces that the node lives in
#   debootstrap                   makes the root filesystem of the training image
#   git                           serves the workspace that the tests clone
set -eu
packages='containerd runc containernetworking-plugins iptables conntrack iproute2 mount util-linux debootstrap git'

missing=
for package in $packages; do
    if [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "Root is needed to install:$missing" >&2
    exit 1
fi
echo "installing$missing"
# Not to be started as a service of this machine: the node runs its own containerd.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 - a list of words
apt-get install -y -qq --no-install-recommends $missing

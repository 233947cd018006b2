# SPDX-License-Identifier: Apache-2.0
# Ends with 0 where crossdevice-run --netns --rate can be run; else says why it cannot.
succeeds() { unshare -n sh -c "$1" >/dev/null 2>&1; }
fail() {
  echo "$1"
  exit 1
}
succeeds true || fail "no network namespace can be made here: it needs root, and unshare(1)"
succeeds "ip link" || fail "the program ip is missing"
succeeds "ip link add br0 type bridge && ip link add ve0 type veth peer name ve1" || fail "the kernel has no bridges, or no veth devices"
succeeds "tc qdisc add dev lo root tbf rate 1mbit burst 32k latency 50ms" || fail "the program tc or the kernel's token bucket filter is missing"

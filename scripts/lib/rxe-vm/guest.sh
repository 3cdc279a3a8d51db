# What a guest of scripts/rxe-vm does after init: network, devices, COMMAND, its status. Process 1.
# shellcheck shell=bash disable=SC2153
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
here=/run/rxe-vm share=/run/rxe-vm/share
# shellcheck disable=SC1091
source $share/conf
for port in /sys/class/virtio-ports/*; do
  read -r name <"$port/name"
  ln -s "/dev/${port##*/}" "$here/$name"
done

note() {
  read -r uptime _ </proc/uptime
  printf 'rxe-vm[%s] %s\n' "$uptime" "$*" >/dev/kmsg
}
fail() {
  note "FAILED: $*"
  printf 'FAIL %s %s\n' "$ID" "$*" >$here/control
  sleep 1
  $here/busybox reboot -f
}

address() { printf '10.77.%d.%d' "$1" $(($2 + 1)); } # guest, device
address6() { printf 'fd77::%x:%x' $(($1 + 1)) $(($2 + 1)); }
mac() { printf '02:77:00:00:%02x:%02x' "$ID" "$1"; }

kernel_settings() {
  hostname "g$ID"
  ulimit -l unlimited
  ulimit -n 65536
  local scope base=/proc/sys/net
  for scope in all default; do
    # An interface answers for its own address only, and takes our other addresses from the wire.
    echo 2 >$base/ipv4/conf/$scope/arp_announce
    echo 1 >$base/ipv4/conf/$scope/arp_ignore
    echo 1 >$base/ipv4/conf/$scope/accept_local
    echo 0 >$base/ipv4/conf/$scope/rp_filter
    echo 0 >$base/ipv6/conf/$scope/accept_dad
    echo 0 >$base/ipv6/conf/$scope/accept_ra
    echo 1 >$base/ipv6/conf/$scope/keep_addr_on_down
  done
}

name_hosts() {
  local g k
  ips='' ips6=''
  {
    echo "127.0.0.1 localhost"
    for ((g = 0; g < GUESTS; g++)); do
      printf '%s g%d\n' "$(address "$g" 0)" "$g"
      for ((k = 0; k < DEVS; k++)); do
        ips+=" $(address "$g" "$k")" ips6+=" $(address6 "$g" "$k")"
        printf '%s g%d-%d\n' "${ips##* }" "$g" "$k"
        printf '%s g%d-%d-v6\n' "${ips6##* }" "$g" "$k"
      done
    done
  } >/etc/hosts
}

# Lines for ip -batch: the links r0..
links() {
  local k
  echo link set lo up
  if ((DEVS == 1 && GUESTS > 1)); then
    echo "link set eth0 name r0 mtu $MTU"
  elif ((DEVS == 1)); then # the far end of the pair swallows what is sent
    echo "link add r0 mtu $MTU address $(mac 0) type veth peer name p0 mtu $MTU"
    echo link set p0 up
  else # one Ethernet: a bridge of veth pairs and the network device
    # A bridge floods for one response interval after its querier starts: 1 s instead of 10.
    echo "link add br0 mtu $MTU type bridge stp_state 0 mcast_snooping $SNOOPING" \
      "mcast_query_response_interval 100 mcast_querier 0"
    ((GUESTS == 1)) || echo "link set eth0 mtu $MTU master br0 up"
    echo link set br0 up
    ((!SNOOPING)) || echo link set br0 type bridge mcast_querier 1
    for ((k = 0; k < DEVS; k++)); do
      echo "link add r$k mtu $MTU address $(mac "$k") type veth peer name p$k mtu $MTU"
      echo "link set p$k master br0 up"
    done
  fi
  for ((k = 0; k < DEVS; k++)); do
    echo "addr add $(address "$ID" "$k")/16 dev r$k"
    echo "addr add $(address6 "$ID" "$k")/64 dev r$k nodad"
    echo "link set r$k up"
  done
}

# routes DEVICE: lines for ip -batch; wanted again whenever the link was down.
routes() {
  (($1 != 0)) || echo route add 224.0.0.0/4 dev r0
  ((DEVS > 1)) || return 0
  local table=$((100 + $1)) prefix
  echo "route add 10.77.0.0/16 dev r$1 src $(address "$ID" "$1") table $table"
  echo "route add 224.0.0.0/4 dev r$1 table $table"
  # A device that talks to itself needs no link.
  echo "route add local $(address "$ID" "$1") dev r$1 table $table"
  echo "route add local $(address6 "$ID" "$1") dev r$1 table $table"
  for prefix in fd77::/64 fe80::/64; do echo "route add $prefix dev r$1 table $table"; done
  echo "route add multicast ff00::/8 dev r$1 table $table"
  # Two queue pairs of one device find each other without asking the Ethernet, which would not say.
  for prefix in "$(address "$ID" "$1")" "$(address6 "$ID" "$1")"; do
    echo "neigh replace $prefix lladdr $(mac "$1") dev r$1 nud permanent"
  done
}

# Lines for ip -batch, of IPv4 and of IPv6. Between two devices of one guest the kernel would take a
# short cut through lo, where rxe finds no device: what is bound to a device, and all that RDMA does
# is, leaves over its link.
rules() {
  local k
  ((DEVS > 1)) || return 0
  for ((k = 0; k < DEVS; k++)); do
    echo "rule add pref 10 iif r$k lookup local"
    echo "rule add pref 20 oif r$k lookup $((100 + k))"
  done
  echo rule add pref 30 lookup local
  echo rule del pref 0
}

# Gives a link that comes up again its routes back.
keep_routes() {
  local line k
  ip -o monitor link | while read -r line; do
    [[ $line =~ ^[0-9]+:\ r([0-9]+)[@:].*[\<,]LOWER_UP ]] || continue
    k=${BASH_REMATCH[1]}
    routes "$k" | ip -force -batch - 2>/dev/null
  done
}

devices() {
  local k
  for ((k = 0; k < DEVS; k++)); do echo "link add rxe$k type rxe netdev r$k"; done >$here/rdma
  rdma -b $here/rdma || fail "adding the rxe devices"
  [[ -n $NETEM ]] || return 0
  modprobe sch_netem || fail "loading sch_netem"
  local words
  read -ra words <<<"$NETEM"
  for ((k = 0; k < DEVS; k++)); do
    tc qdisc add dev "r$k" root netem "${words[@]}" 2>$here/tc ||
      fail "tc refuses --netem '$NETEM': $(head -n 1 $here/tc)"
  done
}

# What COMMAND leaves running ends with it, so that its output has an end.
end_leftovers() {
  local folder pid line
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [[ " 1 $BASHPID $* " != *" $pid "* ]] || continue
    # Kernel threads have no command line.
    read -r -d '' line 2>/dev/null <"$folder/cmdline"
    [[ -z $line ]] || kill -9 "$pid" 2>/dev/null
  done
}

cd / || fail "cd /"
kernel_settings
name_hosts
{ links && for ((k = 0; k < DEVS; k++)); do routes "$k"; done && rules; } >$here/ip
ip -batch $here/ip || fail "ip -batch"
((DEVS == 1)) || rules | ip -6 -batch - || fail "ip -6 -batch"
devices
keep_routes &
disown
export RXE_GUEST=$ID RXE_GUESTS=$GUESTS RXE_DEVS=$DEVS RXE_XCHG=$here/exchange TERM=dumb
RXE_IP=$(address "$ID" 0) RXE_IP6=$(address6 "$ID" 0)
export RXE_IP RXE_IP6 RXE_IPS=${ips# } RXE_IPS6=${ips6# }
((GUESTS == 1)) || "$LIB/bin/rxe-barrier" .boot 600 || fail "waiting for the other guests"
note run
printf 'RUN %s\n' "$ID" >$here/control

# Through pipes: only one process at a time may open a port, and /dev/stdout is one more.
mkfifo $here/pipe.stdout $here/pipe.stderr
cat $here/pipe.stdout >$here/stdout &
copiers=($!)
cat $here/pipe.stderr >$here/stderr &
copiers+=($!)
bash $share/command </dev/null >$here/pipe.stdout 2>$here/pipe.stderr
status=$?
note "exit $status"
end_leftovers "${copiers[@]}"
wait "${copiers[@]}"
((!CONSOLE)) || dmesg >"$share/dmesg.$ID"
printf 'EXIT %s %s\n' "$ID" "$status" >$here/control
while :; do sleep 1000; done

# Starts the guests, passes their output on, waits for their statuses and leaves nothing behind;
# sourced by scripts/rxe-vm, whose options it uses.
# shellcheck shell=bash disable=SC2154

# Emulated CPU: without what the kernel would use to no purpose or what is slow in emulation (erms
# and fsrm turn memcpy into a byte-wise loop: a half to a third of the bandwidth).
cpu_model=max,-la57,-smap,-smep,-umip,-erms,-fsrm,-pcid

run='' hub='' to_stdout='' to_stderr=''
declare -A qemu=() status_of=()
copiers=()

now_us() { printf '%s\n' "${EPOCHREALTIME//[.,]/}"; }
seconds_since() {
  local hundredths=$((($(now_us) - $1) / 10000))
  printf '%d.%02d\n' $((hundredths / 100)) $((hundredths % 100))
}

# Kills the guests, lets what they printed arrive, and removes the files of this run.
clean_up() {
  trap '' INT TERM HUP
  local pid
  # What is open here would keep the copiers from seeing the end of what they copy.
  close_output
  for pid in "${qemu[@]}" $hub; do kill -9 "$pid"; done 2>/dev/null
  for pid in "${qemu[@]}" $hub "${copiers[@]}"; do wait "$pid"; done 2>/dev/null
  qemu=() hub='' copiers=()
  [[ -z $run ]] || rm -rf "$run"
}

# A run that was killed outright could not remove its files; its guests died with it.
remove_stale_runs() {
  local path pid
  for path in "${TMPDIR:-/tmp}"/rxe-vm.*.??????; do
    pid=${path%.*}
    pid=${pid##*.}
    [[ ! -O $path || ! $pid =~ ^[0-9]+$ || -e /proc/$pid ]] || rm -rf "$path"
  done
}

# write_share COMMAND...: what the guests read at /run/rxe-vm/share.
write_share() {
  mkdir -p "$run/share/barriers" "$run/exchange"
  printf '%s=%q\n' GUESTS "$guests" DEVS "$devs" MTU "$mtu" NETEM "$netem" SNOOPING "$snooping" \
    CONSOLE "$console" CACHE "$cache" LIB "$lib" KERNEL "$(cat "$cache/version")" >"$run/share/conf"
  ((!${#writable[@]})) || printf '%s\n' "${writable[@]}" >"$run/share/writable"
  touch "$run/share/writable"
  {
    local own='PATH|TERM|SHLVL|OLDPWD|PWD|_|RXE_[A-Z0-9_]+|TMPDIR'
    declare -px | grep -E '^declare -x ' | grep -vE "^declare -x ($own)="
    printf 'PATH=%q:%q\n' "$lib/bin" "$PATH"
    printf 'cd %q || exit 125\n' "$PWD"
    printf 'exec'
    printf ' %q' "$@"
    echo
  } >"$run/share/command"
}

# QEMU's options for the network of guest G. A lone guest has none: a port without a peer would
# never complete a transmission, and rxe waits 50 s for that when a queue pair is destroyed.
network_of() {
  local guest=$1 id
  ((guests > 1)) || return 0
  id=$(printf '%02x' "$guest")
  printf '%s\n' -netdev "stream,id=n0,server=off,addr.type=unix,addr.path=net$guest" \
    -device "virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:77:00:$id"
}

# A QEMU without a machine joins the guests' network devices, so that any guest may die.
start_hub() {
  local ports=() guest
  for ((guest = 0; guest < guests; guest++)); do
    ports+=(-netdev "stream,id=s$guest,server=on,addr.type=unix,addr.path=net$guest"
      -netdev "hubport,id=h$guest,hubid=0,netdev=s$guest")
  done
  (cd "$run" && exec setpriv --pdeathsig KILL qemu-system-x86_64 -M none -nodefaults \
    -no-user-config -display none "${ports[@]}" >"$run/hub.log" 2>&1) &
  hub=$!
  local try
  for ((try = 0; try < 200; try++)); do
    [[ ! -S $run/net$((guests - 1)) ]] || return 0
    kill -0 "$hub" 2>/dev/null || break
    sleep 0.05
  done
  complain 125 "the guests' network did not start: $(tail -n 1 "$run/hub.log")"
}

# open_output GUEST: leaves descriptors in to_stdout and to_stderr.
open_output() {
  if [[ -n $output ]]; then
    exec {to_stdout}>"$output/stdout.$1" {to_stderr}>"$output/stderr.$1" ||
      complain 125 "cannot write to $output"
    return
  fi
  local prefix=(cat)
  ((guests == 1)) || prefix=(sed -u "s/^/[g$1] /")
  exec {to_stdout}> >(exec "${prefix[@]}")
  copiers+=($!)
  exec {to_stderr}> >(exec "${prefix[@]}" >&2)
  copiers+=($!)
}

close_output() {
  [[ -z $to_stdout ]] || exec {to_stdout}>&-
  [[ -z $to_stderr ]] || exec {to_stderr}>&-
  to_stdout='' to_stderr=''
}

start_guest() {
  local guest=$1 network shares=() number=0 path plain=security_model=none,multidevs=remap
  open_output "$guest"
  mapfile -t network < <(network_of "$guest")
  for path in "${writable[@]}"; do
    shares+=(-virtfs "local,path=${path//,/,,},mount_tag=rw$number,$plain")
    ((number += 1))
  done
  path=${exchange:-exchange}
  local kernel_line="console=ttyS0 loglevel=4 panic=-1 reboot=t mitigations=off nokaslr rodata=off"
  kernel_line+=" tsc=reliable no_timer_check random.trust_cpu=on cryptomgr.notests audit=0"
  kernel_line+=" apparmor=0 lsm= nowatchdog rcupdate.rcu_expedited=1 8250.nr_uarts=1 net.ifnames=0"
  kernel_line+=" initcall_blacklist=init_kprobe_trace,load_system_certificate_list rxe_guest=$guest"
  # Relative paths: a socket's may have no more than 107 bytes.
  (cd "$run" && exec setpriv --pdeathsig KILL qemu-system-x86_64 -nodefaults -no-user-config \
    -display none -no-reboot -M q35 -accel tcg,thread=multi,tb-size=256 -cpu "$cpu_model" \
    -smp "$cpus" -m "$mem" -kernel "$cache/vmlinux" -initrd "$cache/initrd.cpio" \
    -append "$kernel_line" -serial "file:console$guest" -device virtio-serial-pci \
    -add-fd "fd=$to_stdout,set=1" -add-fd "fd=$to_stderr,set=2" \
    -chardev file,id=stdout,path=/dev/fdset/1,append=on \
    -device virtserialport,chardev=stdout,name=stdout \
    -chardev file,id=stderr,path=/dev/fdset/2,append=on \
    -device virtserialport,chardev=stderr,name=stderr \
    -chardev file,id=control,path=control,append=on \
    -device virtserialport,chardev=control,name=control \
    -virtfs "local,path=/,mount_tag=root,readonly=on,$plain" \
    -virtfs local,path=share,mount_tag=share,security_model=none \
    -virtfs "local,path=${path//,/,,},mount_tag=exchange,$plain" \
    "${shares[@]}" "${network[@]}" >"qemu$guest" 2>&1) &
  qemu[$guest]=$!
  close_output
}

# ended GUEST STATUS MARK: takes a guest's end down, for us and for rxe-barrier.
ended() {
  status_of[$1]=$2
  : >"$run/share/barriers/$3.$1"
  [[ -z $output ]] || printf '%s\n' "$2" >"$output/status.$1"
}

# console_end GUEST: what the kernel of a dead or late guest, or its QEMU, said last.
console_end() {
  [[ -s $run/console$1 || -s $run/qemu$1 ]] || return 0
  say "rxe-vm: the console of guest $1 ends with:"
  tail -q -n 60 "$run/console$1" "$run/qemu$1" >&2
}

# died GUEST: a guest's QEMU is gone; false when that ends the run.
died() {
  ended "$1" died dead
  if [[ -n ${may_die[$1]-} ]]; then
    say "rxe-vm: guest $1 died, as --may-die allows"
    return 0
  fi
  say "rxe-vm: guest $1 died"
  console_end "$1"
  return 1
}

# One message of a guest: KIND GUEST REST.
take_message() {
  case $1 in
    EXIT) ended "$2" "$3" ended ;;
    FAIL) say "rxe-vm: guest $2 failed: $3" ;;
    KILL) [[ -z ${qemu[$3]-} ]] || kill -9 "${qemu[$3]}" 2>/dev/null ;;
    RUN) ((!verbose)) || say "rxe-vm: guest $2: COMMAND starts at $(seconds_since "$started") s" ;;
  esac
}

# Waits until every guest has a status; false with `result` set when the run is to end at once.
await_guests() {
  local end=$((started + limit * 1000000)) kind guest rest
  while ((${#status_of[@]} < guests)); do
    if (($(now_us) >= end)); then
      say "rxe-vm: the time limit of $limit s is over"
      for ((guest = 0; guest < guests; guest++)); do
        [[ -n ${status_of[$guest]-} ]] || console_end "$guest"
      done
      result=124
      return 1
    fi
    if read -r -t 0.5 kind guest rest <&"$control"; then
      take_message "$kind" "$guest" "$rest"
      continue
    fi
    for guest in "${!qemu[@]}"; do
      [[ -z ${status_of[$guest]-} ]] || continue
      ! kill -0 "${qemu[$guest]}" 2>/dev/null || continue
      # Its last message may have come in the meantime.
      while read -r -t 0.1 kind_2 guest_2 rest_2 <&"$control"; do
        take_message "$kind_2" "$guest_2" "$rest_2"
      done
      [[ -n ${status_of[$guest]-} ]] || died "$guest" || {
        result=125
        return 1
      }
    done
  done
}

# The first status that is not 0; 125 when no guest lived to give one.
overall_status() {
  local guest found=125
  for ((guest = 0; guest < guests; guest++)); do
    [[ ${status_of[$guest]} != died ]] || continue
    ((found != 125)) || found=0
    ((found == 0)) || continue
    found=${status_of[$guest]}
  done
  printf '%s\n' "$found"
}

# Keeps and prints what the guests' kernels said.
show_consoles() {
  local guest
  for ((guest = 0; guest < guests; guest++)); do
    [[ -z $output ]] || cp "$run/console$guest" "$output/console.$guest"
    ((console)) || continue
    say "--- console of guest $guest"
    cat "$run/console$guest" "$run/share/dmesg.$guest" >&2 2>/dev/null
  done
}

# run_guests COMMAND...: ends the script with the status described there.
run_guests() {
  local started result='' control guest
  started=$(now_us)
  remove_stale_runs
  run=$(mktemp -d "${TMPDIR:-/tmp}/rxe-vm.$$.XXXXXX") ||
    complain 125 "cannot make a temporary folder"
  run=$(readlink -f "$run")
  trap clean_up EXIT
  write_share "$@"
  mkfifo "$run/control"
  exec {control}<>"$run/control"
  ((guests == 1)) || start_hub
  for ((guest = 0; guest < guests; guest++)); do start_guest "$guest"; done
  if await_guests; then result=$(overall_status); fi
  show_consoles
  clean_up
  ((!verbose)) || say "rxe-vm: $(seconds_since "$started") s in all"
  exit "$result"
}

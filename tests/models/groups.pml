/* Who is in a group, and who owns a ring: transport/shm (publish() and is_member(); connect() and
 * disconnect()).
 *
 * Shared: group_version and the slots of the receiver's segment; owner and tail of a ring.
 * Shown: a post that begins after the last change of membership goes to the members; two senders
 * never write to one ring, and the second goes on where the first ended.
 *
 * broken: VERSION_FIRST  the version moves before the slot
 * broken: SLOTS_FIRST    the sender reads the slots before the version that it remembers
 * broken: LOOK_THEN_OWN  a sender looks whether the ring is free and then takes it
 * broken: TAIL_AFTER     a sender gives the ring up before its tail is visible
 */
byte version;
bool member, settled;
byte owner, tail, inside, ended;

active proctype receiver() {
  byte change;
  do
  :: change == 3 -> break
  :: else ->
#ifdef VERSION_FIRST
     version++;
     member = !member;
#else
     member = !member;
     version++;
#endif
     change++
  od;
  settled = true
}

active proctype sender() {
  byte known, now;
  bool any, cached, last;
  do
  :: last = settled;
#ifdef SLOTS_FIRST
     bool early = member;
#endif
     now = version;
     if
     :: any && known == now
     :: else ->
#ifdef SLOTS_FIRST
        cached = early;
#else
        cached = member;
#endif
        known = now;
        any = true
     fi;
     if
     :: last -> break
     :: else
     fi
  od;
  assert(cached == member)
}

active [2] proctype ring_sender() {
  byte at, sent;
  do
  :: sent == 2 -> break
  :: else ->
#ifdef LOOK_THEN_OWN
     owner == 0;
     owner = _pid + 1;
#else
     atomic { owner == 0 -> owner = _pid + 1 };
#endif
     inside++;
     assert(inside == 1);
     at = tail;
     inside--;
#ifdef TAIL_AFTER
     owner = 0;
     tail = at + 1;
#else
     tail = at + 1;
     owner = 0;
#endif
     sent++
  od;
  ended++;
  if
  :: ended == 2 -> assert(tail == 4)
  :: else
  fi
}

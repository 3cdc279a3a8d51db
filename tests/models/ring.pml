/* The shared-memory ring with one producer and one consumer that both sleep: transport/shm
 * (RingProducer, RingConsumer, offer_room(), work_before_sleep(), the bells).
 *
 * Shared: tail, head, room_wanted, both bells, the records. Records take one or two of the ring's
 * four places; the consumer lends out any number before it releases. Positions count on, as in the
 * code.
 * Shown: every record arrives whole and in order, none is overwritten while it is read or lent, and
 * neither end sleeps for ever, without any timeout.
 *
 * broken: TAIL_FIRST     tail moves before the record is written
 * broken: HEAD_FIRST     head moves before the record has been read
 * broken: ROOM_UNASKED   the producer looks at head before it asks for room
 * broken: ASKED_AWAKE    the producer asks for room before it announces its sleep
 * broken: TAIL_LATE      the producer looks at the consumer's bell before tail is visible
 * broken: HEAD_LATE      the consumer looks at room_wanted before head is visible
 */
#include "futex.inc"
#define PLACES 4
#define TOTAL 9  /* places that all records together take */
#define ASLEEP 1
#define AWAKE 0

byte place[PLACES];
byte tail, head;
bool room_wanted;
byte bell[2];  /* 0: the producer's, 1: the consumer's */
bool sleeping[2];

inline ring_bell(whose) {
  rouse = false;
  if
  :: bell[whose] != ASLEEP
  :: else -> d_step { rouse = (bell[whose] == ASLEEP); bell[whose] = AWAKE }
  fi;
  if
  :: rouse -> FUTEX_WAKE(sleeping[whose])
  :: else
  fi
}

active proctype producer() {
  byte own_tail, size, known_head, i;
  bool rouse;
  do
  :: own_tail == TOTAL -> break
  :: else ->
     if
     :: size = 1
     :: own_tail + 2 <= TOTAL -> size = 2
     fi;
     do
     :: known_head = head;  /* has_room() */
        if
        :: PLACES - (own_tail - known_head) >= size -> break
        :: else
        fi;
#ifdef ASKED_AWAKE
        room_wanted = true;
        bell[0] = ASLEEP;
        known_head = head;
#else
        bell[0] = ASLEEP;
#ifdef ROOM_UNASKED
        known_head = head;
        room_wanted = true;
#else
        room_wanted = true;
        known_head = head;
#endif
#endif
        if
        :: PLACES - (own_tail - known_head) >= size
        :: else -> FUTEX_WAIT(bell[0], ASLEEP, sleeping[0])
        fi;
        bell[0] = AWAKE
     od;
#ifdef TAIL_FIRST
     tail = own_tail + size;
#endif
     i = 0;
     do
     :: i == size -> break
     :: else ->
        assert(place[(own_tail + i) % PLACES] == 0);
        place[(own_tail + i) % PLACES] = own_tail + i + 1;
        i++
     od;
     own_tail = own_tail + size;
#ifdef TAIL_LATE
     rouse = (bell[1] == ASLEEP);
     tail = own_tail;
     if
     :: rouse -> bell[1] = AWAKE; FUTEX_WAKE(sleeping[1])
     :: else
     fi
#else
     tail = own_tail;
     ring_bell(1)
#endif
  od
}

inline offer_room() {
  if
  :: !freed || (own_tail - own_head > PLACES / 2 && own_tail != read)
  :: else ->
     if
     :: !room_wanted
     :: else ->
        d_step { wanted = room_wanted; room_wanted = false };
        if
        :: wanted -> freed = false; ring_bell(0)
        :: else
        fi
     fi
  fi
}

inline release_all() {
#ifdef HEAD_FIRST
  head = read;
#endif
  do
  :: own_head == read -> break
  :: else ->
     assert(place[own_head % PLACES] == own_head + 1);
     place[own_head % PLACES] = 0;
     own_head++
  od;
#ifdef HEAD_LATE
  freed = true;
  offer_room();
  head = own_head
#else
  head = own_head;
  freed = true;
  offer_room()
#endif
}

active proctype consumer() {
  byte own_head, read, own_tail;
  bool freed, wanted, rouse;
  do
  :: own_head == TOTAL -> break
  :: else ->
     /* poll(): a place at a time, which leaves out only where records end */
     if
     :: read == own_tail -> own_tail = tail
     :: else
     fi;
     if
     :: read != own_tail ->
        assert(place[read % PLACES] == read + 1);
        read++;
        if
        :: release_all()
        :: skip  /* keeps it lent, looks for more */
        fi
     :: else ->
        offer_room();
        if
        :: read != own_head -> release_all()
        :: else ->
           bell[1] = ASLEEP;
           if
           :: tail != read
           :: else -> FUTEX_WAIT(bell[1], ASLEEP, sleeping[1])
           fi;
           bell[1] = AWAKE
        fi
     fi
  od
}

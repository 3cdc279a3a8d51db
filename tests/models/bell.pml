/* Going to sleep and being woken: the driver's loop (sync/worker.cc), ShmTransport::wait() and
 * wake(), sleep_on_bell() and ring_bell() (transport/shm), with two callers of wake().
 *
 * Shared: bell, woken_, and what each caller published before it called (DriverMail, HandOver).
 * Shown: without any timeout the driver sees all that was published before a wake().
 * The broken orders are what weaker memory orders than seq_cst would allow (a store that becomes
 * visible after a later load).
 *
 * broken: OWNER_STORE_LATE   the announcement becomes visible after the look for news
 * broken: RINGER_STORE_LATE  the news become visible after the look at the bell
 * broken: NO_COMPARE         the futex sleeps without comparing
 * broken: CLEAR_BEFORE       woken_ is cleared before the sleep instead of after it
 */
#include "futex.inc"
#define RINGERS 2
#define AWAKE 0
#define ASLEEP 1

byte bell = AWAKE;
bool woken, sleeping;
byte published;  /* mailboxes, as a count */

active [RINGERS] proctype ringer() {
  bool rouse;
  published++;  /* release, before wake() */
#ifdef RINGER_STORE_LATE
  if
  :: bell != ASLEEP -> woken = true
  :: else -> woken = true; d_step { rouse = (bell == ASLEEP); bell = AWAKE }
  fi;
#else
  woken = true;
  if
  :: bell != ASLEEP
  :: else -> d_step { rouse = (bell == ASLEEP); bell = AWAKE }
  fi;
#endif
  if
  :: rouse -> FUTEX_WAKE(sleeping)
  :: else
  fi
}

active proctype driver() {
  byte seen;
  bool found, rung;
  do
  :: seen = published;  /* progress() */
     if
     :: seen == RINGERS -> break
     :: else
     fi;
#ifdef CLEAR_BEFORE
     woken = false;
#endif
     do  /* wait() */
     ::
#ifdef OWNER_STORE_LATE
        found = woken;
        bell = ASLEEP;
#else
        bell = ASLEEP;
        found = woken;
#endif
        if
        :: found
        :: else ->
#ifdef NO_COMPARE
           sleeping = true;
           !sleeping
#else
           FUTEX_WAIT(bell, ASLEEP, sleeping)
#endif
        fi;
        d_step { rung = (bell == AWAKE); bell = AWAKE };
        if
        :: found || rung -> break
        :: else  /* a stray wake-up */
        fi
     od;
#ifndef CLEAR_BEFORE
     woken = false
#endif
  od
}

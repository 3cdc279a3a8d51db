/* Driver::push() and wait() against the driver's rounds and fail(): sync/driver.cc,
 * sync/rounds/hand_over.cc, sync/rounds/driver_mail.cc, sync/rounds/parker.cc.
 *
 * Shared: pushed_, closed_, failure_claimed_, failed_, error_, the parameters, the report.
 * Shown: parameters and report are touched by one side at a time, an error is whole when it is read,
 * no wake-up of a round is lost, and one that fail() loses costs one timeout of park().
 *
 * broken: PUBLISH_FIRST  closed_ moves before the parameters are mixed
 * broken: WAKE_FIRST     the driver wakes before it moves closed_
 * broken: NO_COMPARE     park() sleeps without comparing
 * broken: NO_TIMEOUT     park() has no timeout: fail() comes between the look and the sleep
 * broken: FAILED_FIRST   failed_ is set before error_ is written
 * broken: NO_CLAIM       two failures write error_ at the same time
 */
#include "futex.inc"
#define ROUNDS 3

byte pushed, closed;
bool claimed, failed, parked;
byte writers;          /* of error_ at the moment */
bool error_whole;
bool app_owns = true;  /* parameters and report */
byte report;

inline fail_engine() {
#ifdef NO_CLAIM
  taken = false;
#else
  d_step { taken = claimed; claimed = true };
#endif
  if
  :: taken
  :: else ->
#ifdef FAILED_FIRST
     failed = true;
#endif
     writers++;
     assert(writers == 1);
     error_whole = true;
     writers--;
#ifndef FAILED_FIRST
     failed = true;
#endif
     FUTEX_WAKE(parked)
  fi
}

active proctype application() {
  byte round, seen;
  bool ended;
  do
  :: round == ROUNDS || ended -> break
  :: else ->
     assert(app_owns);
     app_owns = false;  /* handed over: what follows is the release store */
     pushed++;
     do
     :: seen = closed;
        if
        :: seen == pushed ->
           assert(app_owns && report == pushed);
           round++;
           break
        :: else ->
           if
           :: failed -> assert(error_whole); ended = true; break
           :: else
           fi
        fi;
#ifdef NO_COMPARE
        parked = true;
        !parked
#else
        atomic {
          if
          :: closed == seen -> parked = true
          :: else
          fi
        };
        if
        :: !parked
#ifndef NO_TIMEOUT
        :: failed -> parked = false
#endif
        fi
#endif
     od
  od
}

active proctype driver() {
  bool taken;
  do
  :: failed -> break
  :: !failed && pushed != closed ->
     assert(!app_owns);
#ifdef PUBLISH_FIRST
     closed++;
     report = closed;
     app_owns = true;
     FUTEX_WAKE(parked)
#else
     report = closed + 1;
     app_owns = true;  /* mixed, from the driver's side: the next is the release store */
#ifdef WAKE_FIRST
     FUTEX_WAKE(parked);
     closed++
#else
     closed++;
     FUTEX_WAKE(parked)
#endif
#endif
  :: closed == ROUNDS -> break
  :: !failed -> fail_engine()  /* a deadline or a broken digest */
  od
}

active proctype control() {
  bool taken;
  if
  :: fail_engine()  /* store lost */
  :: skip
  fi
}

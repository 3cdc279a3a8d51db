/* Ranks that the job lost, told by the control thread to a driver that changes epochs meanwhile:
 * DriverMail::mark_lost(), Driver::read_mail(), Driver::accept(), Windows::offer().
 *
 * Shared: lost_, lost_changes_, the offer (EpochMailbox, which has a test of its own).
 * Shown: once the driver has read its mail, the sessions of every epoch it holds have dropped all
 * ranks that were marked before, whenever an offer came in between.
 *
 * broken: COUNT_FIRST  lost_changes_ moves before the flag is set
 * broken: NO_RECHECK   an accepted offer does not look at the flags again
 */
#define RANKS 2

bool lost[RANKS];
byte changes;
bool offered, done;

active proctype control() {
  byte r;
  bool gave;
  do
  :: r == RANKS && gave -> break
  :: r < RANKS ->
#ifdef COUNT_FIRST
     changes++;
     lost[r] = true;
#else
     lost[r] = true;
     changes++;
#endif
     r++
  :: !gave -> offered = true; gave = true
  od;
  done = true
}

bool dropped[4];  /* by epoch and rank: 2 * epoch + rank */

inline drop_flagged(epoch) {
  if
  :: lost[0] -> dropped[2 * (epoch)] = true
  :: else
  fi;
  if
  :: lost[1] -> dropped[2 * (epoch) + 1] = true
  :: else
  fi
}

active proctype driver() {
  byte seen, now, epochs = 1;
  bool last;
  do
  :: last = done;  /* one more read_mail() after all was told */
     now = changes;
     if
     :: now != seen ->
        seen = now;
        drop_flagged(0);
        if
        :: epochs == 2 -> drop_flagged(1)
        :: else
        fi
     :: else
     fi;
     if
     :: epochs == 1 && offered ->
        epochs = 2;
#ifndef NO_RECHECK
        drop_flagged(1)
#endif
     :: else
     fi;
     if
     :: last -> break
     :: else
     fi
  od;
  assert(epochs == 2);
  assert(dropped[0] && dropped[1] && dropped[2] && dropped[3])
}

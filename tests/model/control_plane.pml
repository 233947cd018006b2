/* SPDX-License-Identifier: Apache-2.0 */
/* How the workers of a cluster meet, exchange bytes in rounds, abort and end: src/comm/chief.cc, membership.cc, control_plane.cc and chief_link.cc as a model for spin.
 *
 * What is the same: who sends which frame when, in order on each connection; that both ends of a connection notice its end separately; what the chief
 * remembers. Rank 0 speaks to its own chief as the others do. What is freer: deadlines pass whenever they like. What is left out: proofs of identity,
 * contents, groups other than everybody, stall reports.
 *
 * A worker that has been told of a failure is still there: it makes its next call, or lets go of the cluster at any time, or keeps it for ever and says
 * nothing more (STAYS=1: it lets go at once, or keeps it; STAYS=0: at once). So nobody may count on its going: whoever would wait for it has to be told by
 * the chief, which remembers that a failure is for good. An error that the chief has not told, of a transport, leaves a worker no such choice: it has to go on or to leave.
 *
 * Faults, as many as the numbers below allow, at any moment: a worker dies, rank 0 and its chief too; a connection breaks with what is on its way; a worker
 * calls abort; a worker's deadline passes in a round; a worker's meeting place hears that a later epoch has begun (`supersede`), and no other one's need
 * hear it. Who is left out of that epoch says nothing to its old chief, and is as one that stays: those who are in it say it.
 *
 * What is proved, for every order of steps:
 *   - nobody waits for ever: nothing can happen any more only when everybody has done its rounds, has been told why not, or is dead (spin's invalid end
 *     states, and `init`), even if all who have been told stay;
 *   - no abort is lost: once the chief has heard one, nobody who has not done its rounds goes on waiting for them (`init`), and whoever hears that the
 *     caller has left has been told before (`hear_chief`); an abort that races with a rebuild, whose own it is, is one of them;
 *   - a round that is complete for one is not failed for another (`completed`), and none is completed after one has failed, nor after an abort
 *     (`take_part`);
 *   - who has met has met all: nobody goes to work before everybody has come (`hear_chief`).
 *
 * spin -DN=3 -a control_plane.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000
 */
#ifndef N
#define N 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef ABORTS
#define ABORTS 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#ifndef STAYS
#define STAYS 2
#endif
#ifndef SUPERSESSIONS
#define SUPERSESSIONS 0
#endif
#define ROUNDS 2

#define BIT(r)      (1 << (r))
#define HAS(set, r) (((set) >> (r)) & 1)
#define EVERYBODY   (BIT(N) - 1)
#if N == 2
#define FOR_EACH(option) option(0) option(1)
#elif N == 3
#define FOR_EACH(option) option(0) option(1) option(2)
#else
#define FOR_EACH(option) option(0) option(1) option(2) option(3)
#endif

mtype = {HELLO, EXCHANGE, GIVE_UP, ABORT, GOODBYE, MEMBERS, REFUSED, EXCHANGED, EXCHANGE_FAILED, MEMBER_LOST};
/* MEETING: in join(). CALM: between its rounds. WAITING: in one. STUCK: waits in a transport for somebody who has called abort, and whom it does not
 * hear there. ENDED: an error has said why, and while its connection is open it keeps the cluster for ever. LEAVING: the same, and it lets go some time. DONE:
 * has left in good order. */
mtype = {MEETING, CALM, WAITING, STUCK, LEAVING, ENDED, DONE, DEAD};

mtype phase[N] = MEETING;
byte round[N];  /* that it is in, or is to be in next */
byte missed[N]; /* who it has heard to be lost */
byte is_open[N];  /* its end of the connection to the chief; 2: not begun */

/* The chief */
byte is_serving = 1;
byte has_come;       /* was admitted */
byte is_present;     /* and has not gone */
bit is_cancelled;    /* the meeting */
bit is_aborted;
byte failed;         /* rounds of everybody, as a set */
byte parts[ROUNDS];  /* by round: who has sent its part */

chan up[N] = [6] of {mtype, byte};
chan down[N] = [8] of {mtype, byte};

/* Drawn by `init`, so that runs also end with fewer faults: whoever waits for ever is not to be saved by a fault that was still to come. */
byte deaths;
byte cuts;
byte aborts;
byte give_ups;
byte supersessions;
byte superseded;    /* who, as a set */
byte completed;     /* rounds, as a set */
byte abort_called;  /* by whom first, + 1 */

#define IS_COMPLETE (has_come == EVERYBODY)
#define IS_THERE(r) (phase[r] != DEAD && is_open[r] == 1)
#define WORKS(r)    (phase[r] == CALM || phase[r] == WAITING || phase[r] == STUCK)
#define HAS_LEFT(r) (is_open[r] == 0 && (phase[r] == DONE || phase[r] == ENDED))

inline flush(channel) {
  do
  :: nempty(channel) -> channel?_, _
  :: empty(channel) -> break
  od
}

inline tell(r, kind, number) {
  if
  :: HAS(is_present, r) -> down[r]!kind, number
  :: else
  fi
}

inline tell_all(kind, number) {
  to = 0;
  do
  :: to < N -> tell(to, kind, number); to++
  :: to == N -> break
  od;
  to = 0
}

/* All who have sent their part of a round that is not complete are told that it never will be. */
inline fail_rounds(lost) {
  n = 0;
  do
  :: n < ROUNDS && !HAS(completed, n) && parts[n] != 0 && ((lost) == N || !HAS(parts[n], lost)) ->
    failed = failed | BIT(n);
    to = 0;
    do
    :: to < N && HAS(parts[n], to) -> tell(to, EXCHANGE_FAILED, n); to++
    :: to < N && !HAS(parts[n], to) -> to++
    :: to == N -> break
    od;
    to = 0;
    parts[n] = 0;
    n++
  :: n < ROUNDS && !(!HAS(completed, n) && parts[n] != 0 && ((lost) == N || !HAS(parts[n], lost))) -> n++
  :: n == ROUNDS -> break
  od;
  n = 0
}

inline chief_loses(r) {
  is_present = is_present & ~BIT(r);
  if
  :: IS_COMPLETE -> tell_all(MEMBER_LOST, r); fail_rounds(r)
  :: else  /* they will be told when they are told who is there */
  fi
}

inline take_part(r, number) {
  if
#ifndef FLAW_TAKES_PARTS_AFTER_AN_ABORT
  :: is_aborted -> tell(r, EXCHANGE_FAILED, number)
#endif
#ifndef FLAW_TAKES_PARTS_AFTER_A_FAILURE
  :: failed != 0 -> tell(r, EXCHANGE_FAILED, number)
#endif
  :: else ->
    assert(!HAS(parts[number], r));
    parts[number] = parts[number] | BIT(r);
    if
    :: parts[number] == EVERYBODY ->
      assert(!is_aborted && failed == 0);
      completed = completed | BIT(number);
      tell_all(EXCHANGED, number)
#ifndef FLAW_FORGETS_WHO_WENT_BEFORE
    :: parts[number] != EVERYBODY && (is_present | parts[number]) != EVERYBODY ->
      failed = failed | BIT(number);
      to = 0;
      do
      :: to < N && HAS(parts[number], to) -> tell(to, EXCHANGE_FAILED, number); to++
      :: to < N && !HAS(parts[number], to) -> to++
      :: to == N -> break
      od;
      to = 0;
      parts[number] = 0
#endif
    :: else
    fi
  fi
}

inline hear_member(r) {
  up[r]?kind, number;
  if
  :: kind == HELLO ->
    if
    :: is_cancelled -> down[r]!REFUSED, 0
    :: else ->
      has_come = has_come | BIT(r); is_present = is_present | BIT(r);
      if
      :: IS_COMPLETE -> tell_all(MEMBERS, 0)
      :: else
      fi
    fi
  :: kind != HELLO && !HAS(is_present, r)  /* it has been missed before */
  :: kind == EXCHANGE && HAS(is_present, r) -> take_part(r, number)
  :: kind == GIVE_UP && HAS(is_present, r) ->
    if
    :: !HAS(completed, number) && parts[number] != 0 -> fail_rounds(N)
    :: else  /* it has ended meanwhile, and the answer is on its way */
    fi
  :: kind == ABORT && HAS(is_present, r) ->
    if
#ifdef FLAW_AN_ABORT_ENDS_ROUNDS_ONLY
    :: !is_aborted -> is_aborted = 1; fail_rounds(N)
#else
    :: !is_aborted -> is_aborted = 1; tell_all(ABORT, r); fail_rounds(N)
#endif
    :: else
    fi
  :: kind == GOODBYE && HAS(is_present, r) -> chief_loses(r)
  fi;
  kind = 0; number = 0
}
#define HEAR(r) \
  :: atomic { is_serving && nempty(up[r]) -> hear_member(r) }
/* The connection has ended, and nothing that came on it is left. */
#define MISS(r) \
  :: atomic { is_serving && HAS(is_present, r) && empty(up[r]) && (phase[r] == DEAD || is_open[r] == 0) -> chief_loses(r) }
/* The chief finds a member silent: the connection ends with what is on its way. */
#define DROP(r) \
  :: atomic { is_serving && cuts > 0 && r != 0 && HAS(is_present, r) -> cuts--; flush(up[r]); flush(down[r]); chief_loses(r) }

active proctype Chief() {
  byte n, to, number;
  mtype kind;
end:
  do
  FOR_EACH(HEAR)
  FOR_EACH(MISS)
  FOR_EACH(DROP)
  :: atomic {  /* the deadline of the meeting: those who came are told */
      is_serving && !is_cancelled && !IS_COMPLETE && phase[0] == MEETING ->
      is_cancelled = 1;
      tell_all(REFUSED, 0)
    }
  :: atomic { phase[0] == DEAD && is_serving -> is_serving = 0 }
  /* Its worker has left: it stays until the others have, unless these have another chief. What it has said by then still arrives. */
  :: atomic { HAS_LEFT(0) && is_serving && ((is_present & ~1) == 0 || HAS(superseded, 0)) -> is_serving = 0 }
  :: atomic {  /* lingers no longer; those who are left hear that it has left */
      HAS_LEFT(0) && is_serving && give_ups > 0 -> give_ups--; is_serving = 0 }
  od
}

inline leave(r, how) {
  phase[r] = how;
  round[r] = 0; missed[r] = 0;
  up[r]!GOODBYE, 0;
  is_open[r] = 0
}

/* An error has said why. */
inline hear_why(r) {
  if
#if STAYS > 0
  :: phase[r] = ENDED
#endif
#if STAYS == 2
  :: phase[r] = LEAVING
#else
  :: leave(r, ENDED)
#endif
  fi;
  round[r] = 0; missed[r] = 0
}

inline hear_chief(r) {
  down[r]?kind, number;
  if
  :: kind == MEMBERS ->
    assert(has_come == EVERYBODY && !is_cancelled);
    if
    :: phase[r] == MEETING -> phase[r] = CALM
    :: else
    fi
  :: kind == REFUSED -> phase[r] = ENDED; is_open[r] = 0
  :: kind == EXCHANGED ->
    assert(HAS(completed, number));
    if
    :: phase[r] == WAITING && round[r] == number -> phase[r] = CALM; round[r]++
    :: else
    fi
  :: kind == EXCHANGE_FAILED ->
    assert(!HAS(completed, number));
    if
#if STAYS == 2
    :: phase[r] == WAITING && round[r] == number -> phase[r] = CALM; round[r]++  /* its program goes on, or leaves where there is no other call */
#endif
    :: phase[r] == WAITING && round[r] == number -> hear_why(r)
    :: else
    fi
  :: kind == MEMBER_LOST ->
    if
    :: phase[r] == STUCK ->
      assert(!is_aborted || number != abort_called - 1 || down[r]??[ABORT, _]);  /* an abort is heard before its caller's end */
      if
      :: phase[r] = CALM; missed[r] = missed[r] | BIT(number)
      :: phase[r] = LEAVING; round[r] = 0; missed[r] = 0
      fi
    :: phase[r] == CALM || phase[r] == WAITING -> missed[r] = missed[r] | BIT(number)
    :: else
    fi
  :: kind == ABORT ->
    if
    :: WORKS(r) -> hear_why(r)
    :: else
    fi
  fi;
  kind = 0; number = 0
}

/* The chief does not speak to it any more: dead, gone, or it has dropped this worker, and nothing that it has said is left. */
#define CHIEF_IS_GONE(r) \
  (empty(down[r]) && (!is_serving || (HAS(has_come, r) && !HAS(is_present, r))))

proctype Worker(byte r) {
  byte number;
  mtype kind;
end:
  do
  :: atomic { phase[r] == MEETING && is_open[r] == 2 && is_serving -> is_open[r] = 1; up[r]!HELLO, 0 }
  :: atomic { IS_THERE(r) && nempty(down[r]) -> hear_chief(r) }
  :: atomic { phase[r] == CALM && round[r] < ROUNDS -> up[r]!EXCHANGE, round[r]; phase[r] = WAITING }
  :: atomic { phase[r] == CALM && round[r] == ROUNDS -> leave(r, DONE) }
  :: atomic { phase[r] == LEAVING && is_open[r] == 1 -> leave(r, ENDED) }
  :: atomic { phase[r] == CALM && abort_called != 0 && abort_called != r + 1 && !HAS(missed[r], abort_called - 1) -> phase[r] = STUCK }
  :: atomic {  /* its end of the connection is over */
      IS_THERE(r) && CHIEF_IS_GONE(r) ->
      is_open[r] = 0; flush(up[r]); phase[r] = ENDED; round[r] = 0; missed[r] = 0
    }
  :: atomic { phase[r] == MEETING && !IS_COMPLETE && r != 0 ->  /* its deadline, and a second for the chief's list, are over */
      if
      :: is_open[r] == 1 -> leave(r, ENDED)
      :: is_open[r] == 2 -> phase[r] = ENDED; is_open[r] = 0
      fi
    }

  /* Faults. */
  :: atomic {
      aborts > 0 && WORKS(r) && is_open[r] == 1 -> aborts--;
      abort_called = (abort_called == 0 -> r + 1 : abort_called); up[r]!ABORT, r
    }
  :: atomic {  /* supersede */
      supersessions > 0 && IS_THERE(r) && phase[r] != MEETING && !HAS(superseded, r) ->
      supersessions--; superseded = superseded | BIT(r);
      abort_called = (abort_called == 0 -> r + 1 : abort_called);
#ifndef FLAW_SUPERSEDES_IN_SILENCE
      up[r]!ABORT, r;
#endif
      if
      :: WORKS(r) -> hear_why(r)
      :: else
      fi
    }
  :: atomic { give_ups > 0 && phase[r] == WAITING && is_open[r] == 1 -> give_ups--; up[r]!GIVE_UP, round[r] }
  :: atomic {  /* it finds the chief silent, and says so in case that the chief is only stopped */
      cuts > 0 && r != 0 && WORKS(r) && is_open[r] == 1 ->
      cuts--;
      if
      :: up[r]!ABORT, r
      :: flush(up[r])
      fi;
      flush(down[r]);
      is_open[r] = 0; phase[r] = ENDED; round[r] = 0; missed[r] = 0
    }
  :: atomic {
      deaths > 0 && phase[r] != DEAD && is_open[r] != 0 ->
      deaths--;
      if
      :: flush(up[r])  /* what it has said is lost */
      :: skip          /* or not */
      fi;
      phase[r] = DEAD; is_open[r] = 0; round[r] = 0; missed[r] = 0
    }
  od
}

init {
  byte r = 0;
  atomic {
    select(deaths : 0 .. DEATHS);
    select(cuts : 0 .. CUTS);
    select(aborts : 0 .. ABORTS);
    select(give_ups : 0 .. GIVE_UPS);
    select(supersessions : 0 .. SUPERSESSIONS);
    do
    :: r < N -> is_open[r] = 2; run Worker(r); r++
    :: r == N -> break
    od;
    r = 0
  }
  /* Nothing happens any more. */
  timeout ->
  do
  :: r < N ->
    assert(phase[r] == DONE || phase[r] == ENDED || phase[r] == DEAD);  /* who is LEAVING has left */
    r++
  :: r == N -> break
  od
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Before all have come, a rank may change hands: src/comm/chief_service.cc (contest, await_answer, hear_answer, pass_on, welcome, tell_past, drop_member, beat),
 * chief.cc (refuse, comes_late, is_contested, admit, await_anew, cancel_meeting) and chief_link.cc as a model for spin. Inlines have the names of those functions.
 *
 * Several processes want each of RANKS ranks: who came first, who was restarted, who is there by mistake; none knows of the others, and each comes again when it
 * loses its connection. The chief's own rank is not contested; all others are one event.
 *
 * What is the same: who sends which frame when, in order on each connection; that both ends of a connection notice its end separately, a new connection of
 * the same process perhaps first; that a timer which has ended is heard later, perhaps after what it was for; what the chief remembers. What is freer: times
 * are over whenever they like. But what has come before the first silence has been read before the second: for that the second time is. What is left out:
 * proofs of identity, workers of another program, what comes after the meeting (control_plane.pml), as that one is given up that hears of it late. Nonces are
 * random; here a new one is one that is nowhere any more.
 *
 * Faults, as many as the numbers below allow, at any moment: a process dies, or the chief; a connection breaks at either end, with what is on its way or without; a
 * process gives up; one that lives is too slow to answer; a beat finds some silent. The chief's deadline may pass, or it has none; the others may never come.
 *
 * What is proved, for every order of steps:
 *   - who is in the membership that is announced is one process at each rank, and the only one that ever meets there; it is announced once (`announce`,
 *     `hear_chief`, `pass_on`);
 *   - whose answer comes before the first silence keeps its rank (`hear_silence`);
 *   - an answer to another contest decides nothing: a claimant is refused for an answer only to the question that was asked for its sake (`hear_answer`);
 *   - nobody waits in vain: where nothing can happen any more, everybody is in, was refused, has no chief, or is welcome and waits for somebody who does not
 *     live; no contest is open (`init`). So a restarted worker gets the rank of its dead predecessor;
 *   - who is silent is waited for again, or another has its rank, so it is not announced as gone (`Chief`: beat), nor does a beat complete the meeting in between
 *     (`announce`): a rank that changes hands in it counted before, so in which order it looks at several (RANKS=2) does not matter;
 *   - a meeting that is cancelled is told to everybody who had come, unless the chief's patience is over (`init`).
 *
 * spin -DPROCESSES=3 -a contest.pml && cc -O2 -DSAFETY -DVECTORSZ=2048 -o pan pan.c && ./pan -m1000000 -w25
 */
#ifndef PROCESSES
#define PROCESSES 3
#endif
#ifndef RANKS
#define RANKS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef SLOW
#define SLOW 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#ifndef SILENCES
#define SILENCES 1
#endif

#define RANK(p)      ((p) % RANKS)
/* A process has two connections at most: the one that it uses, and one whose end the chief has not noticed. */
#define CONNECTIONS  (2 * PROCESSES)
#define OWNER(c)     ((c) / 2)
#define HAS(set, r)  (((set) >> (r)) & 1)

#if PROCESSES == 2
#define FOR_EACH_PROCESS(option) option(0) option(1)
#define FOR_ANY_PROCESS(holds)   (holds(0) || holds(1))
#define FOR_EACH_CONNECTION(option) option(0) option(1) option(2) option(3)
#define FOR_ANY_CONNECTION(holds)   (holds(0) || holds(1) || holds(2) || holds(3))
#elif PROCESSES == 3
#define FOR_EACH_PROCESS(option) option(0) option(1) option(2)
#define FOR_ANY_PROCESS(holds)   (holds(0) || holds(1) || holds(2))
#define FOR_EACH_CONNECTION(option) option(0) option(1) option(2) option(3) option(4) option(5)
#define FOR_ANY_CONNECTION(holds)   (holds(0) || holds(1) || holds(2) || holds(3) || holds(4) || holds(5))
#else
#define FOR_EACH_PROCESS(option) option(0) option(1) option(2) option(3)
#define FOR_ANY_PROCESS(holds)   (holds(0) || holds(1) || holds(2) || holds(3))
#define FOR_EACH_CONNECTION(option) option(0) option(1) option(2) option(3) option(4) option(5) option(6) option(7)
#define FOR_ANY_CONNECTION(holds) \
  (holds(0) || holds(1) || holds(2) || holds(3) || holds(4) || holds(5) || holds(6) || holds(7))
#endif
#if RANKS == 1
#define FOR_EACH_RANK(option) option(0)
#define FOR_ANY_RANK(holds)   (holds(0))
#else
#define FOR_EACH_RANK(option) option(0) option(1)
#define FOR_ANY_RANK(holds)   (holds(0) || holds(1))
#endif

mtype = {HELLO, ANSWER, GOODBYE, WELCOME, ASK, MEMBERS, REFUSED};
/* A process. MEETING: in join(). MET: knows the members. ENDED: an error has said why. */
mtype = {MEETING, MET, ENDED, DEAD};
/* The chief's end of a connection. */
mtype = {CLOSED, STRANGER, CLAIMANT, SESSION};
/* A rank, Chief::Presence. */
mtype = {ABSENT, PRESENT, GONE};

mtype phase[PROCESSES] = MEETING;
byte mine[PROCESSES];     /* its end of the connection that it uses, + 1 */
bit is_welcome[PROCESSES];
byte posted[PROCESSES];   /* the nonce that it is to answer with next */
bit was_told[PROCESSES];  /* why it was refused */

/* The chief */
bit is_serving = 1;
mtype chief_end[CONNECTIONS] = CLOSED;
mtype presence[RANKS] = ABSENT;
byte holder[RANKS];       /* Member::info: a process, + 1 */
bit has_left[RANKS];      /* Member::gone_text: it knows why */
byte num_admitted;
byte sessions[RANKS];     /* a connection, + 1 */
byte claimant[RANKS];     /* Contest: a connection, + 1; 0: none */
byte nonce[RANKS];
byte timer[RANKS];        /* 1: runs for the first time; 2: for the second */
byte due[RANKS];          /* one that has ended and is not heard yet, the same; */
byte due_nonce[RANKS];    /* and its contest's */
byte unread[RANKS];       /* frames that had come when the first time was over */
bit is_cancelled;
bit have_others_come;
bit is_announced;
byte announced[RANKS];    /* a process, + 1 */

chan up[CONNECTIONS] = [4] of {mtype, byte};
chan down[CONNECTIONS] = [5] of {mtype, byte};

/* How many may still happen. At any moment there may be no more of any, nor a deadline, nor anybody who still comes (`Chief`): whoever waits for ever is not to
 * be saved by a fault that was still to come. (What ends a run with fewer than there may be is no state of its own that way, as it is where numbers are drawn at
 * the beginning: a fifth of the states, for 2 processes, and the same ends.) */
byte deaths = DEATHS;
byte cuts = CUTS;
byte slow = SLOW;
byte give_ups = GIVE_UPS;
byte silences = SILENCES;
bit is_patient;    /* the chief has no deadline any more */
bit never_others;  /* the others never come any more */

/* What only proofs look at. */
bit was_asked[RANKS];     /* the question of this contest has come to the holder */
bit is_in_time[RANKS];    /* its answer was there at the first silence */
bit has_come[PROCESSES];  /* held a rank when the meeting was cancelled, and had not left */
bit is_out_of_patience;   /* the chief */
byte silent_now;          /* ranks, as a set; + RANKS: that are dropped already */

#define IS_COMPLETE     (num_admitted == RANKS + 1)
#define IS_OPEN(c)      (mine[OWNER(c)] == (c) + 1)  /* the process's end */
#define IS_CONTESTED(r) (claimant[r] != 0)

inline flush(channel) {
  do
  :: nempty(channel) -> channel?_, _
  :: empty(channel) -> break
  od
}

inline say(c, kind, number) {
  if
  :: IS_OPEN(c) -> assert(nfull(down[c])); down[c]!kind, number
  :: else
  fi
}

/* What has been said before is still on its way. */
inline close_here(c) {
  chief_end[c] = CLOSED;
  flush(up[c]);
  if
  :: !IS_OPEN(c) -> flush(down[c])
  :: else
  fi
}

inline end_contest(r) { claimant[r] = 0; nonce[r] = 0; timer[r] = 0; unread[r] = 0; was_asked[r] = 0; is_in_time[r] = 0 }

inline refuse_claimant(r) {
  other = claimant[r] - 1;
  assert(chief_end[other] == CLAIMANT);
  end_contest(r);
  say(other, REFUSED, 0);
  close_here(other);
  other = 0
}

inline refuse_claimants() {
  q = 0;
  do
  :: q < RANKS && IS_CONTESTED(q) -> refuse_claimant(q)
  :: q < RANKS && !IS_CONTESTED(q) -> q++
  :: q == RANKS -> break
  od;
  q = 0
}

inline announce() {
  assert(!is_announced && !is_cancelled);
  assert(silent_now == 0);
  is_announced = 1;
  q = 0;
  do
  :: q < RANKS ->
    assert((presence[q] == PRESENT) == (sessions[q] != 0));
    assert(presence[q] != PRESENT || OWNER(sessions[q] - 1) == holder[q] - 1);
    announced[q] = holder[q];
    if
    :: presence[q] == PRESENT -> say(sessions[q] - 1, MEMBERS, 0)
    :: else
    fi;
    q++
  :: q == RANKS -> break
  od;
  q = 0;
#ifndef FLAW_FORGETS_CLAIMANTS_WHEN_ALL_HAVE_COME
  refuse_claimants()
#endif
}

inline begin_session(c, r) {
  if
  :: sessions[r] != 0 ->
    assert(OWNER(sessions[r] - 1) == OWNER(c));
#ifndef FLAW_KEEPS_THE_CONNECTION_THAT_WAS_REPLACED
    close_here(sessions[r] - 1)
#endif
  :: else
  fi;
  sessions[r] = (c) + 1;
  chief_end[c] = SESSION
}

inline admit(c, r) {
  if
  :: presence[r] == ABSENT -> num_admitted++
  :: else
  fi;
  presence[r] = PRESENT; holder[r] = OWNER(c) + 1; has_left[r] = 0
}

inline welcome(c, r) {
  say(c, WELCOME, 0);
  begin_session(c, r);
  admit(c, r);
  if
  :: IS_CONTESTED(r) -> refuse_claimant(r)  /* a holder that comes again lives */
  :: else
  fi;
  if
  :: IS_COMPLETE -> announce()
  :: else
  fi
}

inline await_anew(r) {
  if
  :: !IS_COMPLETE && presence[r] == PRESENT -> presence[r] = ABSENT; num_admitted--
  :: else
  fi
}

/* To the claimant, the holder being gone. */
inline pass_on(r) {
  assert(!IS_COMPLETE && !is_cancelled);
  won = claimant[r] - 1;
  assert(chief_end[won] == CLAIMANT);
  end_contest(r);
  welcome(won, r);
  won = 0
}

inline drop_member(r) {
  other = sessions[r] - 1;
  sessions[r] = 0;
  close_here(other);
  other = 0;
  if
  :: IS_CONTESTED(r) -> await_anew(r)
  :: else
  fi;
  if
  :: presence[r] == PRESENT -> presence[r] = GONE
  :: else
  fi;
#ifndef FLAW_KEEPS_THE_RANK_OF_WHO_GOES
  if
  :: IS_CONTESTED(r) -> pass_on(r)
  :: else
  fi
#endif
}

#define IS_ASKED(c)    || (down[c]??[ASK, eval(number)])
#define IS_ANSWERED(c) || (up[c]??[ANSWER, eval(number)])
#define IS_POSTED(p)   || posted[p] == number
#define IS_OF(r)       || nonce[r] == number || due_nonce[r] == number
#define IS_ANYWHERE \
  (false FOR_EACH_CONNECTION(IS_ASKED) FOR_EACH_CONNECTION(IS_ANSWERED) FOR_EACH_PROCESS(IS_POSTED) FOR_EACH_RANK(IS_OF))

inline contest(c, r) {
  if
  :: IS_CONTESTED(r) && OWNER(claimant[r] - 1) != OWNER(c) -> say(c, REFUSED, 0); close_here(c)
  :: IS_CONTESTED(r) && OWNER(claimant[r] - 1) == OWNER(c) ->  /* it has lost that connection, and comes again */
    close_here(claimant[r] - 1);
    claimant[r] = (c) + 1; chief_end[c] = CLAIMANT
  :: else ->
    number = 1;
    do
    :: IS_ANYWHERE -> number++
    :: else -> break
    od;
    claimant[r] = (c) + 1; chief_end[c] = CLAIMANT; nonce[r] = number; timer[r] = 1;
    say(sessions[r] - 1, ASK, number)
  fi
}

#define COMES_LATE(c, r) (IS_COMPLETE && holder[r] == OWNER(c) + 1 && !has_left[r])

/* Chief::refuse, comes_late and is_contested. */
inline answer_hello(c, r) {
  assert(chief_end[c] == STRANGER);
  if
  :: is_cancelled ->
    if
#ifdef FLAW_TAKES_ANOTHER_FOR_WHO_HAS_GONE
    :: presence[r] == GONE -> has_left[r] = 1
#else
    :: presence[r] == GONE && holder[r] == OWNER(c) + 1 -> has_left[r] = 1  /* it has been told now */
#endif
    :: else
    fi;
    say(c, REFUSED, 0); close_here(c)
  :: !is_cancelled && COMES_LATE(c, r) -> say(c, WELCOME, 0); say(c, MEMBERS, 0); close_here(c)  /* tell_past */
  :: !is_cancelled && IS_COMPLETE && !COMES_LATE(c, r) -> say(c, REFUSED, 0); close_here(c)
  :: else ->
    if
    :: presence[r] == PRESENT && holder[r] != OWNER(c) + 1 -> contest(c, r)
    :: else -> welcome(c, r)
    fi
  fi
}

inline hear_answer(r) {
  if
#ifdef FLAW_AN_ANSWER_NEEDS_NO_NONCE
  :: IS_CONTESTED(r) -> assert(was_asked[r]); refuse_claimant(r)
#else
  :: IS_CONTESTED(r) && number == nonce[r] -> assert(was_asked[r]); refuse_claimant(r)
#endif
  :: else
  fi
}

inline hear_process(c, r) {
  if
  :: sessions[r] == (c) + 1 && unread[r] > 0 -> unread[r]--
  :: else
  fi;
  up[c]?kind, number;
  if
  :: kind == HELLO -> answer_hello(c, r)
  :: kind == ANSWER -> assert(sessions[r] == (c) + 1); hear_answer(r)
  :: kind == GOODBYE -> assert(sessions[r] == (c) + 1); presence[r] = GONE; has_left[r] = 1; drop_member(r)
  fi;
  kind = 0; number = 0
}

inline hear_end(c, r) {
  if
  :: chief_end[c] == CLAIMANT -> assert(claimant[r] == (c) + 1); end_contest(r); close_here(c)
  :: chief_end[c] == SESSION -> assert(sessions[r] == (c) + 1); drop_member(r)
  :: chief_end[c] == STRANGER -> close_here(c)
  fi
}

/* await_answer: its handler. */
inline hear_silence(r) {
  if
#ifdef FLAW_AN_OLD_TIMER_COUNTS
  :: IS_CONTESTED(r) ->
#else
  :: IS_CONTESTED(r) && nonce[r] == due_nonce[r] ->
#endif
    if
    :: due[r] == 1 ->
      is_in_time[r] = up[sessions[r] - 1]??[ANSWER, eval(nonce[r])];
#ifdef FLAW_IS_PATIENT_ONCE
      assert(!is_in_time[r]); drop_member(r)
#else
      unread[r] = len(up[sessions[r] - 1]);
      timer[r] = 2
#endif
    :: due[r] == 2 ->
      assert(!is_in_time[r]);
      assert(due_nonce[r] == nonce[r]);
      if
      :: IS_OPEN(sessions[r] - 1) -> slow--
      :: else
      fi;
      drop_member(r)
    fi
  :: else
  fi;
  due[r] = 0; due_nonce[r] = 0
}

/* Which connection is picked within the step, rather than a step for each: the same states, and a fraction of the program. */
#define IS_HEARD(c)   (chief_end[c] != CLOSED && nempty(up[c]))
#define IS_MISSED(c)  (chief_end[c] != CLOSED && empty(up[c]) && !IS_OPEN(c))
#define IS_CUT(c)     (chief_end[c] != CLOSED)
#define PICK_HEARD(c)   :: IS_HEARD(c) -> at = c
#define PICK_MISSED(c)  :: IS_MISSED(c) -> at = c
#define PICK_CUT(c)     :: IS_CUT(c) -> at = c
#define RING(r) \
  :: atomic { timer[r] != 0 && due[r] == 0 -> due[r] = timer[r]; due_nonce[r] = nonce[r]; timer[r] = 0 }
/* The second time of a holder that can still answer is over as often as one may be slow. */
#define HEAR_SILENCE(r) \
  :: atomic { is_serving && due[r] != 0 && \
      (!IS_CONTESTED(r) || nonce[r] != due_nonce[r] || due[r] == 1 || (unread[r] == 0 && (!IS_OPEN(sessions[r] - 1) || slow > 0))) -> \
      hear_silence(r) }

#define MAY_BE_SILENT(r) (sessions[r] != 0 && empty(up[sessions[r] - 1]))
#define CHOOSE_SILENT(r) \
  if \
  :: MAY_BE_SILENT(r) -> silent_now = silent_now | (1 << (r)) \
  :: true \
  fi;
#ifdef FLAW_GIVES_UP_WHO_IS_SILENT
#define AWAIT_SILENT(r)
#else
#define AWAIT_SILENT(r) \
  if \
  :: HAS(silent_now, r) -> await_anew(r) \
  :: else \
  fi;
#endif
#define DROP_SILENT(r) \
  if \
  :: HAS(silent_now, r) -> silent_now = silent_now & ~(1 << (r)) | (1 << ((r) + RANKS)); drop_member(r) \
  :: else \
  fi;
#define EXPECT_AWAITED(r) assert(!HAS(silent_now, (r) + RANKS) || presence[r] != GONE);
#define IS_STRANGER(c)   (chief_end[c] == STRANGER)
#define IS_PRESENT(r)    (sessions[r] != 0)
#define IS_IN_DOUBT(r)   (presence[r] == GONE && !has_left[r])
#define TELL_PRESENT(r) \
  if \
  :: presence[r] != ABSENT && !has_left[r] -> has_come[holder[r] - 1] = 1 \
  :: else \
  fi; \
  if \
  :: presence[r] == PRESENT -> say(sessions[r] - 1, REFUSED, 0) \
  :: else \
  fi;
#define STOP(c) \
  chief_end[c] = CLOSED; flush(up[c]); \
  if \
  :: !IS_OPEN(c) -> flush(down[c]) \
  :: else \
  fi;
#define FORGET(r) end_contest(r); sessions[r] = 0; due[r] = 0; due_nonce[r] = 0; holder[r] = 0; presence[r] = ABSENT; has_left[r] = 0;

inline stop() {
  is_serving = 0;
  FOR_EACH_CONNECTION(STOP)
  FOR_EACH_RANK(FORGET)
  num_admitted = 0
}

active proctype Chief() {
  byte q, at, other, won, number;
  mtype kind;
end:
  do
  :: atomic {
      is_serving && FOR_ANY_CONNECTION(IS_HEARD) ->
      if
      FOR_EACH_CONNECTION(PICK_HEARD)
      fi;
      hear_process(at, RANK(OWNER(at)));
      at = 0
    }
  :: atomic {
      is_serving && FOR_ANY_CONNECTION(IS_MISSED) ->
      if
      FOR_EACH_CONNECTION(PICK_MISSED)
      fi;
      hear_end(at, RANK(OWNER(at)));
      at = 0
    }
  :: atomic {
      is_serving && cuts > 0 && !is_announced && FOR_ANY_CONNECTION(IS_CUT) ->
      cuts--;
      if
      FOR_EACH_CONNECTION(PICK_CUT)
      fi;
      if
      :: flush(down[at])
      :: nempty(down[at])
      fi;
      hear_end(at, RANK(OWNER(at)));
      at = 0
    }
  FOR_EACH_RANK(RING)
  FOR_EACH_RANK(HEAR_SILENCE)
  :: atomic {  /* the last of the others */
      is_serving && !is_cancelled && !have_others_come && !never_others ->
      have_others_come = 1; num_admitted++;
      if
      :: IS_COMPLETE -> announce()
      :: else
      fi
    }
  :: atomic {  /* beat */
      is_serving && silences > 0 && !IS_COMPLETE && !is_cancelled && FOR_ANY_RANK(MAY_BE_SILENT) ->
      silences--;
      FOR_EACH_RANK(CHOOSE_SILENT)
      FOR_EACH_RANK(AWAIT_SILENT)
      FOR_EACH_RANK(DROP_SILENT)
      FOR_EACH_RANK(EXPECT_AWAITED)
      silent_now = 0
    }
  :: atomic {  /* cancel_meeting: its deadline */
      is_serving && !is_patient && !is_cancelled && !IS_COMPLETE ->
      is_cancelled = 1;
      FOR_EACH_RANK(TELL_PRESENT)
#ifndef FLAW_FORGETS_CLAIMANTS_WHEN_IT_CANCELS
      refuse_claimants()
#endif
    }
  :: atomic {  /* await_farewells, of a meeting that was cancelled */
      is_serving && is_cancelled && !FOR_ANY_RANK(IS_PRESENT) && !FOR_ANY_RANK(IS_IN_DOUBT) && !FOR_ANY_CONNECTION(IS_STRANGER) -> stop()
    }
  :: atomic { is_serving && is_cancelled && give_ups > 0 -> give_ups--; is_out_of_patience = 1; stop() }
  :: atomic { is_serving && deaths > 0 && !is_announced -> deaths--; is_out_of_patience = 1; stop() }
  :: atomic {  /* there is no more of them */
      deaths + cuts + slow + give_ups + silences > 0 || !is_patient || !never_others ->
      deaths = 0; cuts = 0; slow = 0; give_ups = 0; silences = 0; is_patient = 1; never_others = 1
    }
  od
}

/* A process's end of its connection. */
inline let_go(p) {
  at = mine[p] - 1;
  mine[p] = 0; is_welcome[p] = 0;
  flush(down[at]);
  if
  :: chief_end[at] == CLOSED -> flush(up[at])
  :: else
  fi;
  at = 0
}

inline lose_what_it_has_said(p) {
  if
  :: flush(up[mine[p] - 1])
  :: nempty(up[mine[p] - 1])
  fi
}

inline connect(p) {
  at = 2 * p;
  if
  :: chief_end[at] != CLOSED -> at++
  :: else
  fi;
  assert(empty(up[at]) && empty(down[at]));
  mine[p] = at + 1;
  chief_end[at] = STRANGER;
  up[at]!HELLO, 0;
  at = 0
}

inline hear_chief(p) {
  down[mine[p] - 1]?kind, number;
  if
  :: kind == WELCOME -> is_welcome[p] = 1
  :: kind == ASK ->
    posted[p] = number;
    if
    :: IS_CONTESTED(RANK(p)) && nonce[RANK(p)] == number -> was_asked[RANK(p)] = 1
    :: else
    fi
  :: kind == MEMBERS ->
    assert(is_announced && announced[RANK(p)] == p + 1);
    assert(phase[p] == MEETING);
    phase[p] = MET
  :: kind == REFUSED ->
    assert(phase[p] == MEETING);
    phase[p] = ENDED; was_told[p] = 1;
    if
    :: is_welcome[p] && chief_end[mine[p] - 1] != CLOSED -> up[mine[p] - 1]!GOODBYE, 0
    :: else
    fi;
    let_go(p)
  fi;
  kind = 0; number = 0
}

proctype Process(byte p) {
  byte at, number;
  mtype kind;
end:
  do
  :: atomic { is_serving && phase[p] == MEETING && mine[p] == 0 && (chief_end[2 * p] == CLOSED || chief_end[2 * p + 1] == CLOSED) -> connect(p) }
  :: atomic { mine[p] != 0 && posted[p] == 0 && nempty(down[mine[p] - 1]) -> hear_chief(p) }
  :: atomic {  /* say_operation */
      posted[p] != 0 ->
      if
      :: is_welcome[p] && chief_end[mine[p] - 1] != CLOSED -> up[mine[p] - 1]!ANSWER, posted[p]
      :: else
      fi;
      posted[p] = 0
    }
  :: atomic { mine[p] != 0 && posted[p] == 0 && empty(down[mine[p] - 1]) && chief_end[mine[p] - 1] == CLOSED -> let_go(p) }  /* and it comes again */
  :: atomic { !is_serving && phase[p] == MEETING && mine[p] == 0 -> phase[p] = ENDED }  /* its deadline: there is no chief */

  /* Faults. */
  :: atomic {
      give_ups > 0 && phase[p] == MEETING ->
      give_ups--; phase[p] = ENDED; was_told[p] = 1; posted[p] = 0;
      if
      :: mine[p] != 0 && is_welcome[p] && chief_end[mine[p] - 1] != CLOSED -> up[mine[p] - 1]!GOODBYE, 0
      :: else
      fi;
      if
      :: mine[p] != 0 -> let_go(p)
      :: else
      fi
    }
  :: atomic { cuts > 0 && phase[p] == MEETING && mine[p] != 0 -> cuts--; lose_what_it_has_said(p); let_go(p) }
  :: atomic {
      deaths > 0 && phase[p] == MEETING ->
      deaths--; phase[p] = DEAD; posted[p] = 0;
      if
      :: mine[p] != 0 -> lose_what_it_has_said(p); let_go(p)
      :: else
      fi
    }
  od
}

#define WANTS(p)     (phase[p] == MEETING && RANK(p) == r)
#define ALL_ARE_HERE (presence[0] != ABSENT && presence[RANKS - 1] != ABSENT && have_others_come)

init {
  byte r = 0, i = 0;
  atomic {
    do
    :: i < PROCESSES -> run Process(i); i++
    :: i == PROCESSES -> break
    od;
    i = 0
  }
  /* Nothing happens any more. */
  timeout ->
  do
  :: r < RANKS ->
    assert(!IS_CONTESTED(r));
    /* A rank that somebody wants who lives is held by somebody who lives. */
    assert(!FOR_ANY_PROCESS(WANTS) || (presence[r] == PRESENT && phase[holder[r] - 1] == MEETING));
    r++
  :: r == RANKS -> break
  od;
  do
  :: i < PROCESSES ->
    assert(phase[i] != MEETING || (is_welcome[i] && holder[RANK(i)] == i + 1 && sessions[RANK(i)] == mine[i] && is_serving && !is_cancelled && !ALL_ARE_HERE));
    assert(phase[i] != ENDED || was_told[i] || !has_come[i] || is_out_of_patience);
    i++
  :: i == PROCESSES -> break
  od
}

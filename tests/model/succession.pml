/* SPDX-License-Identifier: Apache-2.0 */
/* How workers go on after a failure: src/comm/meeting_candidate.cc, meeting_place.cc, succession.cc and the loop of Cluster::rebuild, as a model for spin.
 *
 * What is the same: who asks whom, who takes whom in, promises, votes, what a candidate proposes and when, CHOSEN, epochs and who adopts them, joining the
 * new cluster, the order of messages on a connection, and that its two ends notice its end separately. What is freer, so that more can happen here than
 * there: patience is over whenever it likes, nobody need ask before it is a candidate; with CHANGES, whoever is in a candidate's hands may go to any lower one that
 * takes it in, as long as it has heard no proposal; who waits in an operation of the first epoch for somebody who has left
 * it is told to stop at once. What is left out: numbers of bytes, proofs of identity, time.
 *
 * How many are enough: a majority; or MIN_WORKERS; or, with NEEDS_ALL, all. Fewer than a majority are safe only where nobody's patience is over before
 * whoever lives has come, and no connection breaks (PATIENT, CUTS=0); what is proved then is proved of those who live.
 *
 * Faults, as many as the numbers below allow, at any moment: a worker dies; one end of a connection gives it up with what is on its way; a worker is too
 * slow to join in time; one that works in a later epoch aborts it and calls rebuild. A worker that is stopped is one that makes no step.
 *
 * What is proved, for every order of steps:
 *   - two workers never know different members of one epoch (`adopt`);
 *   - a worker that works in an epoch is a member of it, and the members of an epoch that work in it are all there (`work`);
 *   - where all are needed, no epoch is without anybody (`adopt`);
 *   - nobody waits for ever: where nothing can happen any more, whoever still waits has too few to wait for, and nobody is still in an operation that
 *     somebody has left, of whatever epoch (`run_out_of_time`). The steps that would repeat without an effect are left out, and ballots and epochs have a
 *     bound that is asserted, so an endless quarrel would be found too.
 *
 * spin -DN=3 -DDEATHS=1 -DCUTS=1 -DSLOW=1 -a succession.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000
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
#ifndef SLOW
#define SLOW 1
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef EPOCHS
#define EPOCHS 6
#endif
#ifndef ROUNDS
#define ROUNDS 12
#endif

/* An option for every worker. */
#if N == 2
#define FOR_EACH(option) option(0) option(1)
#define FOR_ALL(holds)   (holds(0) && holds(1))
#define FOR_ANY(holds)   (holds(0) || holds(1))
#define HOW_MANY(holds)  (holds(0) + holds(1))
#elif N == 3
#define FOR_EACH(option) option(0) option(1) option(2)
#define FOR_ALL(holds)   (holds(0) && holds(1) && holds(2))
#define FOR_ANY(holds)   (holds(0) || holds(1) || holds(2))
#define HOW_MANY(holds)  (holds(0) + holds(1) + holds(2))
#else
#define FOR_EACH(option) option(0) option(1) option(2) option(3)
#define FOR_ALL(holds)   (holds(0) && holds(1) && holds(2) && holds(3))
#define FOR_ANY(holds)   (holds(0) || holds(1) || holds(2) || holds(3))
#define HOW_MANY(holds)  (holds(0) + holds(1) + holds(2) + holds(3))
#endif

#define BIT(r)          (1 << (r))
#define HAS(set, r)     (((set) >> (r)) & 1)
#define EVERYBODY       (BIT(N) - 1)
#define COUNT(set)      (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3))
#define MAJORITY(set)   (COUNT(set) / 2 + 1)
/* MeetingPlace::State::enough(): all; as many as the program has said; or a majority. */
#if defined(NEEDS_ALL)
#define QUORUM(set)     COUNT(set)
#elif defined(MIN_WORKERS)
#define QUORUM(set)     MIN_WORKERS
#else
#define QUORUM(set)     MAJORITY(set)
#endif
/* The ballot of a round and a rank, ordered as Ballot is; 0: none. */
#define BALLOT(round, r) ((round) * 8 + (r) + 1)
#define ROUND(ballot)   ((ballot) / 8)

mtype = {PREPARE, PROPOSE, CHOSEN, REFUSED, PROMISE, ACCEPT};
/* STUCK: waits without a deadline in an operation of its epoch for somebody who has left it. A death ends the operation, as control_plane.pml shows; that the
 * others' chief tells it, too, is left out here: it may be gone. STUCK_BEFORE, only with a flaw: in one of an earlier epoch. */
mtype = {WORKING, STUCK, STUCK_BEFORE, MEETING, JOINING, LEFT_OUT, FAILED, DEAD};

mtype phase[N] = WORKING;  /* begins in epoch 1 */
byte epoch[N] = 1;
byte members[N] = EVERYBODY;

/* SuccessionVoter */
byte promised[N];
byte voted[N];
byte voted_for[N];
/* SuccessionCandidate; ballot 0: not a candidate */
byte ballot[N];
byte highest_round[N];
byte promises[N];
byte absent[N];
byte bound[N];
byte bound_to[N];
byte proposal[N];  /* members; 0: none yet */
byte votes[N];
/* Connections: whom a candidate has taken in, who has taken a member in (rank + 1), who has said so but was not heard yet. */
byte sessions[N];
byte link[N];
byte answer[N];
bit has_heard[N];  /* a proposal, on the link */
byte gone[N];
/* Who was left out is told by these. */
byte told_epoch[N];
byte told_members[N];

/* More than are ever on their way: where a connection is full, nothing goes on, which is an invalid end state. */
#if CUTS > 2
#define FRAMES 5
#else
#define FRAMES 3
#endif
chan down[N * N] = [FRAMES] of {mtype, byte, byte, bit};  /* [candidate * N + member] */
chan up[N * N] = [FRAMES] of {mtype, byte, byte, byte};   /* [member * N + candidate] */
#define DOWN(c, m) down[(c) * N + (m)]
#define UP(m, c)   up[(m) * N + (c)]

/* Drawn by `init`, so that runs also end with fewer faults: whoever waits for ever is not to be saved by a fault that was still to come. */
byte deaths;
byte cuts;
byte slow;
byte aborts;
byte chosen_members[EPOCHS + 1];

#define IS_ALIVE(r)     (phase[r] != DEAD)
#define IS_DEAD(r)      (phase[r] == DEAD)
#define IS_CANDIDATE(r) (ballot[r] != 0)
/* What a member of an earlier or of this epoch is answered. */
#define TAKES_IN(c, m) \
  (phase[c] == MEETING && IS_CANDIDATE(c) && proposal[c] == 0 && epoch[c] == epoch[m] && (c) < (m))
#define MAY_ASK(r) \
  (phase[r] == MEETING && link[r] == 0 && answer[r] == 0 && proposal[r] == 0)

inline flush(channel) {
  do
  :: nempty(channel) -> channel?_, _, _, _
  :: empty(channel) -> break
  od
}

/* No candidate any more. What it has said is still on its way to those it has taken in. */
inline dissolve(r) {
  ballot[r] = 0; promises[r] = 0; absent[r] = 0; bound[r] = 0; bound_to[r] = 0; proposal[r] = 0; votes[r] = 0;
  highest_round[r] = 0; sessions[r] = 0;
}

inline leave_candidate(r) {
  if
  :: link[r] != 0 -> flush(DOWN(link[r] - 1, r)); flush(UP(r, link[r] - 1)); link[r] = 0; has_heard[r] = 0
  :: else
  fi
}

#define KNOWS_ANOTHER(q) (IS_ALIVE(q) && epoch[q] == e && members[q] != m)

inline adopt(r, e, m) {
  if
  :: e > epoch[r] ->
    assert(e <= EPOCHS);
#ifdef PATIENT
    /* Fewer than a majority: what the dead have chosen last they may have told nobody. */
    assert(!FOR_ANY(KNOWS_ANOTHER));
#else
    assert(chosen_members[e] == 0 || chosen_members[e] == m);
#endif
#ifdef NEEDS_ALL
    assert(m == EVERYBODY);
#endif
#ifdef WITNESS_LIVES_AND_IS_LEFT_OUT_AFTER_A_DEATH
    assert(HAS(m, r) || !FOR_ANY(IS_DEAD));
#endif
    chosen_members[e] = m;
    dissolve(r);
    leave_candidate(r);
    answer[r] = 0; gone[r] = 0;
    promised[r] = 0; voted[r] = 0; voted_for[r] = 0;
    epoch[r] = e; members[r] = m;
    if
#ifdef FLAW_SUPERSEDES_NOTHING
    :: phase[r] == STUCK -> phase[r] = STUCK_BEFORE
    :: phase[r] != STUCK && !HAS(m, r) -> phase[r] = LEFT_OUT
    :: phase[r] != STUCK && HAS(m, r) && phase[r] != FAILED -> phase[r] = MEETING
#else
    :: !HAS(m, r) -> phase[r] = LEFT_OUT
    :: HAS(m, r) && phase[r] != FAILED -> phase[r] = MEETING  /* whoever works or joins hears that it is over, and calls again */
#endif
    :: else
    fi
  :: else
  fi
}

inline begin_ballot(r, round) {
  if
  :: (round) > highest_round[r] -> highest_round[r] = (round)
  :: else
  fi;
  assert(highest_round[r] <= ROUNDS);
  ballot[r] = BALLOT(highest_round[r], r);
  promises[r] = BIT(r); absent[r] = 0; proposal[r] = 0; votes[r] = 0;
  /* Its own promise. */
#ifdef FLAW_FORGETS_ITS_OWN_VOTE
  bound[r] = 0; bound_to[r] = 0;
#else
  bound[r] = voted[r]; bound_to[r] = voted_for[r];
#endif
  if
  :: promised[r] < ballot[r] -> promised[r] = ballot[r]
  :: else
  fi
}

/* Nobody reads what is sent where the other end has gone. */
#define IS_HEARD_BY(r, m) (HAS(sessions[r], m) && (link[m] == (r) + 1 || answer[m] == (r) + 1))

inline send_to_all(r, kind, first, second, third) {
  i = 0;
  do
  :: i < N && IS_HEARD_BY(r, i) -> DOWN(r, i)!kind, first, second, third; i++
  :: i < N && !IS_HEARD_BY(r, i) -> i++
  :: i == N -> break
  od;
  i = 0
}

inline prepare(r) { send_to_all(r, PREPARE, ballot[r], 0, 0) }

inline drop_member(c, m) {
  flush(UP(m, c));
  sessions[c] = sessions[c] & ~BIT(m);
  absent[c] = absent[c] | BIT(m)
}

/* A candidate with a quorum's promises, everybody's that it has taken in among them, proposes. */
#define COME(r) (promises[r] & ~absent[r])
#if defined(NEEDS_ALL) && defined(FLAW_NEEDS_A_MAJORITY)
#define ARE_ENOUGH(r, set) (COUNT(set) >= MAJORITY(members[r]))
#else
#define ARE_ENOUGH(r, set) (COUNT(set) >= QUORUM(members[r]))
#endif
/* With PATIENT, whoever lives comes before patience is over. */
#define IS_AWAITED(q) \
  (HAS(members[r], q) && !HAS(COME(r), q) && (phase[q] == MEETING || phase[q] == JOINING || phase[q] == WORKING || phase[q] == STUCK))
#if defined(PATIENT) && !defined(FLAW_IS_NOT_PATIENT)
#define IS_PATIENCE_OVER (!FOR_ANY(IS_AWAITED))
#else
#define IS_PATIENCE_OVER true
#endif
#define MAY_PROPOSE(r) \
  (phase[r] == MEETING && IS_CANDIDATE(r) && proposal[r] == 0 && ARE_ENOUGH(r, promises[r]) && \
   (sessions[r] & ~promises[r]) == 0 && (bound[r] != 0 || (ARE_ENOUGH(r, COME(r)) && IS_PATIENCE_OVER)))
#define ALL_HAVE_VOTED(r) \
  (phase[r] == MEETING && proposal[r] != 0 && (sessions[r] & ~votes[r]) == 0)

inline propose(r) {
  if
#ifdef FLAW_IGNORES_WHAT_OTHERS_HAVE_VOTED_FOR
  :: true -> proposal[r] = COME(r)
#else
  :: bound[r] != 0 -> proposal[r] = bound_to[r]
  :: else -> proposal[r] = COME(r)
#endif
  fi;
  voted[r] = ballot[r]; voted_for[r] = proposal[r];
  votes[r] = BIT(r);
  send_to_all(r, PROPOSE, ballot[r], proposal[r], 0)
}

inline choose(r) {
  if
  :: ARE_ENOUGH(r, votes[r]) ->
    /* `third`: they meet at once; else some of its members are not there, and those who are choose again. */
    are_all_there = (proposal[r] & ~(sessions[r] | BIT(r))) == 0 && HAS(proposal[r], r);
    e = epoch[r] + 1; m = proposal[r];
    send_to_all(r, CHOSEN, e, m, are_all_there);
    i = 0;
    do
    :: i < N && HAS(members[r], i) && !HAS(m, i) && i != r ->
#ifndef FLAW_FORGETS_WHO_IS_LEFT_OUT
      told_epoch[i] = e; told_members[i] = m;
#endif
      i++
    :: i < N && !(HAS(members[r], i) && !HAS(m, i) && i != r) -> i++
    :: i == N -> break
    od;
    i = 0;
    adopt(r, e, m);
    if
    :: are_all_there -> phase[r] = JOINING
    :: else
    fi;
    e = 0; m = 0; are_all_there = 0
  :: else -> begin_ballot(r, highest_round[r] + 1); prepare(r)
  fi
}

/* Too few are left: those who have come are told. */
inline give_up(r) {
  send_to_all(r, REFUSED, 0, 0, 0);
  dissolve(r);
  leave_candidate(r);
  answer[r] = 0;
  phase[r] = FAILED
}

/* Whether somebody will not join the epoch that this worker joins. */
#define IS_THERE(r, e) ((phase[r] == JOINING || phase[r] == WORKING || phase[r] == STUCK) && epoch[r] == (e))
#define HEARS_CHOSEN(r) (link[r] != 0 && DOWN(link[r] - 1, r)??[CHOSEN, _, _, _])
#define WILL_NOT_JOIN(r, e) \
  (phase[r] == DEAD || phase[r] == FAILED || phase[r] == LEFT_OUT || epoch[r] > (e) || \
   (phase[r] == MEETING && epoch[r] == (e)) || (phase[r] == MEETING && epoch[r] < (e) && !HEARS_CHOSEN(r)))

/* What worker r may do with worker q. */
#define ASKS(q) \
  (MAY_ASK(r) && q != r && HAS(members[r], q) && (q < r || IS_CANDIDATE(r)))
/* In a candidate's hands, with a question to a lower one open. */
#ifdef CHANGES
#define MAY_CHANGE_TO(q) \
  (phase[r] == MEETING && link[r] != 0 && answer[r] == 0 && !has_heard[r] && HAS(members[r], q) && (q) + 1 < link[r])
#else
#define MAY_CHANGE_TO(q) 0
#endif
#define FIND_DEAD(q) \
  :: atomic { ASKS(q) && !IS_ALIVE(q) && !HAS(gone[r], q) -> gone[r] = gone[r] | BIT(q) }
#define BE_TAKEN_IN(q) \
  :: atomic { (ASKS(q) || MAY_CHANGE_TO(q)) && q < r && TAKES_IN(q, r) -> \
      flush(UP(r, q)); flush(DOWN(q, r)); sessions[q] = sessions[q] | BIT(r); absent[q] = absent[q] | BIT(r); \
      DOWN(q, r)!PREPARE, ballot[q], 0, 0; gone[r] = gone[r] & ~BIT(q); answer[r] = q + 1 }
#define HEAR_OF_LATER_EPOCH(q) \
  :: atomic { ASKS(q) && IS_ALIVE(q) && epoch[q] > epoch[r] -> e = epoch[q]; m = members[q]; adopt(r, e, m); e = 0; m = 0 }
#define TELL_OF_LATER_EPOCH(q) \
  :: atomic { ASKS(q) && IS_ALIVE(q) && epoch[q] < epoch[r] -> adopt(q, epoch[r], members[r]) }
#define ROUSE(q) \
  :: atomic { ASKS(q) && phase[q] == STUCK && epoch[q] == epoch[r] -> phase[q] = MEETING }
#define HAS_LEFT_WORK(q)  (HAS(members[r], q) && phase[q] == MEETING && epoch[q] == epoch[r])
#define IS_DEAD_MEMBER(q) (HAS(members[r], q) && IS_DEAD(q))
#define HEAR_MEMBER(q) \
  :: atomic { phase[r] == MEETING && HAS(sessions[r], q) && nempty(UP(q, r)) -> \
      UP(q, r)?kind, first, second, third; hear_member(r, q); kind = 0; first = 0; second = 0; third = 0 }
/* Its connection has ended, or the member has closed it without asking further. */
#define MISS_MEMBER(q) \
  :: atomic { HAS(sessions[r], q) && (!IS_ALIVE(q) || (link[q] != r + 1 && answer[q] != r + 1)) -> drop_member(r, q) }
#define CUT_MEMBER(q) \
  :: atomic { cuts > 0 && HAS(sessions[r], q) -> cuts--; flush(DOWN(r, q)); drop_member(r, q) }

/* A candidate hears a promise or a vote. */
inline hear_member(r, q) {
  if
  :: first > ballot[r] -> begin_ballot(r, ROUND(first) + 1); prepare(r)
  :: first == ballot[r] && kind == PROMISE ->
    promises[r] = promises[r] | BIT(q);
    absent[r] = absent[r] & ~BIT(q);
    if
    :: proposal[r] == 0 && second > bound[r] -> bound[r] = second; bound_to[r] = third
    :: else
    fi
  :: first == ballot[r] && kind == ACCEPT && proposal[r] != 0 -> votes[r] = votes[r] | BIT(q)
  :: else
  fi
}

/* A member hears its candidate. */
inline hear_candidate(r) {
  if
  :: kind == PREPARE ->
    if
    :: promised[r] < first -> promised[r] = first
    :: else
    fi;
    UP(r, link[r] - 1)!PROMISE, promised[r], voted[r], voted_for[r]
  :: kind == PROPOSE ->
    has_heard[r] = 1;
    /* A vote below the promise is not counted: on its connection the promise comes first, and the candidate begins anew. The harm is that it takes the place of
     * a later one. With three workers that needs three broken connections in one epoch (CUTS=3): candidate b has this member's promise and loses it before it
     * proposes; the member votes for the list of candidate a, whose ballot is higher, and loses a, which chooses it, before it hears so; and b proposes when
     * the member has come back, before it has heard of that ballot: it is bound by an earlier vote, or counts on a, whose end it has not noticed, and for
     * either a has lost b, too. All three have to live, so no death does instead; and who is slow is in the next epoch, where no vote is left. */
#ifdef FLAW_VOTES_BELOW_ITS_PROMISE
    promised[r] = first; voted[r] = first; voted_for[r] = second;
#else
    if
    :: first >= promised[r] -> promised[r] = first; voted[r] = first; voted_for[r] = second
    :: else
    fi;
#endif
    UP(r, link[r] - 1)!ACCEPT, promised[r], 0, 0
  :: kind == CHOSEN ->
    assert(first > epoch[r]);
    adopt(r, first, second);
    if
    :: flag && phase[r] == MEETING -> phase[r] = JOINING
    :: else
    fi
  :: kind == REFUSED -> leave_candidate(r); phase[r] = FAILED
  fi
}

#define IS_ABSENT_OR_THERE(q) (!HAS(members[r], q) || IS_THERE(q, epoch[r]))
#define IS_ABSENT_OR_AGREES(q) (!HAS(members[r], q) || members[q] == members[r])
#define KEEPS_AWAY(q)         (HAS(members[r], q) && WILL_NOT_JOIN(q, epoch[r]))
#define MAY_STILL_COME(q)     (HAS(members[r], q) && (phase[q] == MEETING || phase[q] == JOINING || phase[q] == WORKING || phase[q] == STUCK))

proctype Worker(byte r) {
  byte i, e, m;
  byte first, second, third;
  bit are_all_there;
  bit flag;
  mtype kind;

end:
  do
  /* The program calls rebuild. */
  :: atomic { phase[r] == WORKING && epoch[r] == 1 -> phase[r] = MEETING }
  :: atomic { aborts > 0 && phase[r] == WORKING && epoch[r] > 1 -> aborts--; phase[r] = MEETING }
  /* Or it waits for one that has, and calls it when it is roused. */
  :: atomic { phase[r] == WORKING && FOR_ANY(HAS_LEFT_WORK) -> phase[r] = STUCK }
  :: atomic { phase[r] == STUCK && FOR_ANY(IS_DEAD_MEMBER) -> phase[r] = MEETING }

  FOR_EACH(FIND_DEAD)
  FOR_EACH(BE_TAKEN_IN)
#ifndef FLAW_DOES_NOT_SPEAK_OF_LATER_EPOCHS
  FOR_EACH(HEAR_OF_LATER_EPOCH)
  FOR_EACH(TELL_OF_LATER_EPOCH)
#endif
#ifndef FLAW_ROUSES_NOBODY
  FOR_EACH(ROUSE)
#endif
  /* The answer of the candidate that takes it in is here; it is a candidate itself, perhaps, and no more from now on. */
  :: atomic {
      answer[r] != 0 ->
      if
      :: phase[r] == MEETING && proposal[r] == 0 && !has_heard[r] -> dissolve(r); leave_candidate(r); link[r] = answer[r]
      :: else -> flush(DOWN(answer[r] - 1, r))
      fi;
      answer[r] = 0
    }

  /* It is a member. */
  :: atomic {
      link[r] != 0 && nempty(DOWN(link[r] - 1, r)) ->
      DOWN(link[r] - 1, r)?kind, first, second, flag;
      hear_candidate(r);
      kind = 0; first = 0; second = 0; flag = 0
    }
  :: atomic {  /* the other end is gone, and nothing that it has said is left */
      link[r] != 0 && (!IS_ALIVE(link[r] - 1) || (!HAS(sessions[link[r] - 1], r) && empty(DOWN(link[r] - 1, r)))) ->
      leave_candidate(r)
    }

  /* It is a candidate. */
  :: atomic { MAY_ASK(r) && !IS_CANDIDATE(r) -> begin_ballot(r, ROUND(promised[r]) + 1) }
  FOR_EACH(HEAR_MEMBER)
  FOR_EACH(MISS_MEMBER)
  :: atomic { MAY_PROPOSE(r) -> propose(r) }
  :: atomic { ALL_HAVE_VOTED(r) -> choose(r) }
  :: atomic {
      phase[r] == MEETING && link[r] == 0 && answer[r] == 0 && COUNT(members[r] & ~gone[r]) < QUORUM(members[r]) ->
      give_up(r)
    }

  /* It was left out, and is told. */
  :: atomic {
      told_epoch[r] != 0 && IS_ALIVE(r) ->
      e = told_epoch[r]; m = told_members[r]; told_epoch[r] = 0; told_members[r] = 0;
      adopt(r, e, m);
      e = 0; m = 0
    }

  /* The new cluster: all are there; or somebody does not come, or goes, which the next operation of the others finds. */
  :: atomic {
      phase[r] == JOINING && FOR_ALL(IS_ABSENT_OR_THERE) ->
      assert(HAS(members[r], r));
#ifndef PATIENT
      assert(members[r] == chosen_members[epoch[r]]);
#endif
      assert(FOR_ALL(IS_ABSENT_OR_AGREES));
      phase[r] = WORKING
    }
  :: atomic { (phase[r] == JOINING || phase[r] == WORKING) && FOR_ANY(KEEPS_AWAY) -> phase[r] = MEETING }

  /* Faults. */
  :: atomic {
      deaths > 0 && IS_ALIVE(r) ->
      deaths--;
      phase[r] = DEAD;  /* what it has said may still arrive */
      dissolve(r);
      link[r] = 0; has_heard[r] = 0; answer[r] = 0; gone[r] = 0;
      promised[r] = 0; voted[r] = 0; voted_for[r] = 0; told_epoch[r] = 0; told_members[r] = 0; epoch[r] = 0; members[r] = 0;
      break
    }
  :: atomic { cuts > 0 && link[r] != 0 -> cuts--; leave_candidate(r) }
  FOR_EACH(CUT_MEMBER)
  :: atomic { slow > 0 && phase[r] == JOINING -> slow--; phase[r] = MEETING }

  /* run_out_of_time: nothing else can happen to anybody. */
  :: atomic {
      timeout && (phase[r] == MEETING || phase[r] == JOINING) ->
      assert(HOW_MANY(MAY_STILL_COME) < QUORUM(members[r]));
      phase[r] = FAILED
    }
  :: atomic { timeout && (phase[r] == STUCK || phase[r] == STUCK_BEFORE) -> assert(false) }  /* neither roused nor told, and it would wait for ever */
  od
}

init {
  byte r = 0;
  atomic {
    chosen_members[1] = EVERYBODY;
    select(deaths : 0 .. DEATHS);
    select(cuts : 0 .. CUTS);
    select(slow : 0 .. SLOW);
    select(aborts : 0 .. ABORTS);
    do
    :: r < N -> run Worker(r); r++
    :: r == N -> break
    od
  }
}

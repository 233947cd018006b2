/* SPDX-License-Identifier: Apache-2.0 */
/* Which operation a worker is said to be in: src/comm/detail/operations_under_way.h, and operation_note.h with a kind of two words, as a model for spin. Each load,
 * store and atomic change is a step; that they come in the order of the program is what the comments there argue from acquire and release.
 *
 * THREADS threads enter and leave ROUNDS operations each, whose kinds and numbers are all different; one thread reads, at any time.
 *
 * What is proved, for every order of steps:
 *   - what is named is one operation, kind and number, that has been entered, and that has been left if nothing is said to be under way (`Reader`);
 *   - one writes the note at a time (`write_note`); who enters while nothing is under way is named (`enter`).
 *
 * FLAW_MARKS_THE_END is how it was: who is the last to leave marks the note as over. FLAW_WAITS_FOR_NO_TURN: whoever enters writes.
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define WRITTEN 127  /* being written */
#define IDLE    128  /* beside the others, only with the flaw */

/* OperationsUnderWay::state_, which changes as one. */
byte num_under_way;
byte num_notes;
byte num_written;
/* The note: an operation is a number from 1 on, which each word of its kind is, too. */
byte state;
byte kind[2];

/* What only proofs look at. */
bit was_entered[THREADS * ROUNDS + 1];
bit was_left[THREADS * ROUNDS + 1];
byte num_writers;

inline write_note(operation) {
  num_writers++;
#if !defined(FLAW_MARKS_THE_END) && !defined(FLAW_WAITS_FOR_NO_TURN)
  assert(num_writers == 1);
#endif
  state = WRITTEN;
  kind[0] = operation;
  kind[1] = operation;
  state = operation;
  num_writers--
}

#ifdef FLAW_MARKS_THE_END
inline enter(operation) {
  atomic { num_under_way++; was_entered[operation] = 1 }
  write_note(operation)
}
inline leave(operation) {
  atomic { num_under_way--; was_left[operation] = 1; is_last = num_under_way == 0 }
  if
  :: is_last -> seen = state; state = seen | IDLE
  :: else
  fi;
  seen = 0; is_last = 0
}
#else
inline enter(operation) {
  atomic { seen_under_way = num_under_way; seen = num_notes }
  do
  :: is_named = num_written == seen;
#ifdef FLAW_WAITS_FOR_NO_TURN
    is_named = 1;
#endif
    atomic {  /* compare_exchange */
      if
      :: num_under_way == seen_under_way && num_notes == seen ->
        num_under_way++; num_notes = num_notes + is_named; was_entered[operation] = 1;
        assert(is_named || seen_under_way > 0);
        break
      :: else -> seen_under_way = num_under_way; seen = num_notes
      fi
    }
  od;
  if
  :: is_named -> write_note(operation); num_written = seen + 1
  :: else
  fi;
  seen = 0; seen_under_way = 0; is_named = 0
}
inline leave(operation) {
  atomic { num_under_way--; was_left[operation] = 1 }
}
#endif

proctype Thread(byte number) {
  byte round = 1, seen, seen_under_way;
  bit is_named, is_last;
  do
  :: round <= ROUNDS ->
    enter(number * ROUNDS + round);
    leave(number * ROUNDS + round);
    round++
  :: round > ROUNDS -> break
  od
}

/* One try; the next one is another run. */
proctype Reader() {
  byte written, seen, first, second, operation;
  bit is_idle;
  written = num_written;
  seen = state;
  first = kind[0];
  second = kind[1];
  if
  :: seen == 0 || seen == WRITTEN || state != seen -> goto end
  :: else
  fi;
#ifdef FLAW_MARKS_THE_END
  is_idle = (seen & IDLE) != 0;
#else
  atomic {
    is_idle = num_under_way == 0;
    if
    :: num_notes != written -> goto end
    :: else
    fi
  }
#endif
  operation = seen & ~IDLE;
  assert(first == operation && second == operation);
  assert(was_entered[operation]);
  assert(!is_idle || was_left[operation]);
end:
  skip
}

init {
  byte i = 0;
  atomic {
    do
    :: i < THREADS -> run Thread(i); i++
    :: i == THREADS -> break
    od;
    run Reader()
  }
}

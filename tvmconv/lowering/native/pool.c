/* A pool of threads for loops of microseconds, in a process that may share its processors.
 *
 * No thread is bound to a processor. A waiting thread spins for some microseconds, then yields its processor to other threads,
 * and sleeps as soon as one took it, or after some milliseconds: to wake a sleeping thread takes longer than most loops, on a
 * virtual machine with an idle processor 0.3 ms. A loop does not wait for a thread that gets no processor: threads that are done with their
 * share take from the others', also from that of a thread which has not begun. Several threads may call at once: each gets those of the pool that
 * are idle, and computes alone if none is.
 */
#include "threads.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "parallel.h"
#include "processor.h"

#define LINE __attribute__((aligned(64)))
#define MOST_WORKERS 1023
/* Time to spin: on an idle machine, waits for another thread within a loop, or for the next loop of a network, are
 * shorter; to wake a sleeping thread takes about as long (docs/performance.md). */
#define SPIN_NANOSECONDS 50000
#define YIELD_NANOSECONDS 4000000
/* A yield that takes longer gave the processor to another thread; after so many, others want it: fewer may be the system's work. */
#define LOST_NANOSECONDS 10000
#define MOST_LOST 3
#define FINISH_NANOSECONDS 1000 /* before a caller looks for workers that have not begun */
#define PAUSES 16 /* between two looks at the clock */
#define REFUSED_NANOSECONDS 1000000000 /* to ask the system for no thread after it gave none: that takes longer than many loops */
/* Sleeping workers that a caller wakes itself: all of so many, or the first of more, each of which wakes two others. A system call for one
 * takes some microseconds, and a caller of 33 threads took 0.4 ms for all of them one by one. */
#define WAKES_ALL 8
#define WAKES_FIRST 4
#define WAKES_NEXT 2

typedef struct Loop Loop;
typedef struct Worker Worker;

/* The indices that one thread begins with. */
typedef struct {
  LINE _Atomic int64_t next;
  int64_t end;
  Loop* loop;
} Share;

/* A loop under way, in its caller's frame. The first share is the caller's. */
struct Loop {
  Body body;
  void* data;
  Share* shares;
  int count; /* of the shares */
  Worker** hired;
  atomic_int number; /* of the hired workers to wake by each other; 0 until all are hired */
  atomic_int woken;  /* of these, awake or being woken */
  atomic_int failed;
  LINE atomic_int open; /* shares of which an index is left */
  LINE atomic_uint running; /* workers that may still look at this, and CALLER_SLEEPS */
};
#define CALLER_SLEEPS (1u << 31)

/* Offers to a worker, other than a share: nothing, for it is idle; nothing, for it works; to leave a team. */
#define IDLE ((Share*)0)
#define BUSY ((Share*)1)
#define LEAVE ((Share*)2)

/* The starter of a loop and a waiting worker pass one cache line between them; each further line would take as long. */
struct Worker {
  LINE _Atomic(Share*) offer;
  LINE atomic_uint asleep;
};

typedef struct {
  Lock growing;
  atomic_int alive;
  int usual; /* workers that there may be, also for callers that ask for fewer */
  _Atomic int64_t refused; /* until when none are started */
  atomic_int processors; /* of this process, at the last look */
  int is_team; /* it starts no threads */
  Worker* workers[MOST_WORKERS];
} Pool;

/* Set while this thread is within an iteration. */
static __thread int within;

/* Spins until a condition holds or time is up. */
#define SPIN_UNTIL(condition, nanoseconds)                                                \
  for (int64_t until = (condition) ? 0 : clock_now() + nanoseconds; !(condition) && clock_now() < until;) \
    for (int pause = 0; pause < PAUSES && !(condition); pause++) PAUSE();

/* Yields until a condition holds, the processor is wanted, or time is up. */
#define YIELD_UNTIL(condition)                                                                                    \
  for (int64_t before = clock_now(), until = before + YIELD_NANOSECONDS, after, lost = 0;                               \
       !(condition) && before < until && lost < MOST_LOST; before = after) {                                      \
    give_way();                                                                                                \
    lost += (after = clock_now()) - before > LOST_NANOSECONDS;                                                          \
  }

static void run_share(Loop* loop, Share* share) {
  for (;;) {
    int64_t index = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
    if (index >= share->end || atomic_load_explicit(&loop->failed, memory_order_relaxed)) return;
    if (index == share->end - 1) atomic_fetch_sub_explicit(&loop->open, 1, memory_order_relaxed);
    if (loop->body(loop->data, index) != 0) atomic_store_explicit(&loop->failed, 1, memory_order_relaxed);
  }
}

static int any_open(Loop* loop) {
  return atomic_load_explicit(&loop->open, memory_order_relaxed) > 0 && !atomic_load_explicit(&loop->failed, memory_order_relaxed);
}

/* Runs a thread's own share, and then the rest of the others'. */
static void run_shares(Loop* loop, Share* own) {
  within = 1;
  run_share(loop, own);
  for (int distance = 1, first = own - loop->shares; distance < loop->count && any_open(loop); distance++) {
    Share* other = &loop->shares[(first + distance) % loop->count];
    if (atomic_load_explicit(&other->next, memory_order_relaxed) < other->end) run_share(loop, other);
  }
  within = 0;
}

/* Returns whether the worker slept. */
static int wake(Worker* worker) {
  if (!atomic_load(&worker->asleep) || !atomic_exchange(&worker->asleep, 0)) return 0;
  wake_at(&worker->asleep);
  return 1;
}

/* Wakes up to `most` of a loop's workers that no thread has woken. */
static void wake_some(Loop* loop, int most) {
  const int number = atomic_load(&loop->number);
  for (int next; most > 0 && atomic_load(&loop->woken) < number && (next = atomic_fetch_add(&loop->woken, 1)) < number;)
    most -= wake(loop->hired[next]);
}

static int offered(Worker* self) { return atomic_load_explicit(&self->offer, memory_order_relaxed) > BUSY; }

/* Runs the shares that are offered, until the offer to leave. */
static void serve(Worker* self) {
  for (;;) {
    SPIN_UNTIL(offered(self), SPIN_NANOSECONDS)
    YIELD_UNTIL(offered(self))
    int slept = 0;
    for (; !offered(self); slept = 1) {
      atomic_store(&self->asleep, 1);
      if (atomic_load(&self->offer) <= BUSY) wait_at(&self->asleep, 1);
      atomic_store(&self->asleep, 0);
    }
    Share* own = atomic_load(&self->offer);
    if (own == LEAVE) return;
    if (own <= BUSY || !atomic_compare_exchange_strong(&self->offer, &own, BUSY)) continue; /* taken back */
    Loop* loop = own->loop;
    if (slept && any_open(loop)) wake_some(loop, WAKES_NEXT);
    run_shares(loop, own);
    /* Idle first: the caller's next loop looks for it. The loop's frame lives until this worker has been counted. */
    atomic_store(&self->offer, IDLE);
    if (atomic_fetch_sub(&loop->running, 1) == (CALLER_SLEEPS | 1)) wake_at(&loop->running);
  }
}

static THREAD_RESULT work(void* argument) {
  begin_worker();
  serve(argument);
  return THREAD_DONE;
}

static int start(Worker* worker, Share* offer) {
  atomic_init(&worker->offer, offer);
  atomic_init(&worker->asleep, 0);
  return start_thread(work, worker, 0);
}

/* Starts a worker for each of `count` shares while the pool has fewer than `most`; returns their number, and they are in `hired`. */
static int grow(Pool* pool, Share* shares, int count, int most, Worker** hired) {
  int started = 0;
  if (atomic_load(&pool->alive) >= most || clock_now() < atomic_load(&pool->refused)) return 0;
  take_lock(&pool->growing);
  for (int alive = atomic_load(&pool->alive); started < count && alive < most; alive++) {
    Worker** place = &pool->workers[alive];
    if (*place == NULL && (*place = new_lines(sizeof **place)) == NULL) break;
    if (!start(*place, &shares[started])) {
      atomic_store(&pool->refused, clock_now() + REFUSED_NANOSECONDS);
      break;
    }
    hired[started++] = *place;
    atomic_store(&pool->alive, alive + 1);
  }
  give_lock(&pool->growing);
  return started;
}

/* Offers `count` shares to idle workers, and to new ones; returns their number, and they are in `hired`. The same workers come first
 * in every loop: their caches have its data. */
static int hire(Pool* pool, Share* shares, int count, Worker** hired) {
  int number = 0, alive = atomic_load(&pool->alive);
  for (int each = 0; each < alive && number < count; each++) {
    Worker* worker = pool->workers[each];
    Share* idle = IDLE;
    if (atomic_load_explicit(&worker->offer, memory_order_relaxed) != IDLE ||
        !atomic_compare_exchange_strong(&worker->offer, &idle, &shares[number]))
      continue;
    hired[number++] = worker;
  }
  if (number == count || pool->is_team) return number;
  return number + grow(pool, &shares[number], count - number, count < pool->usual ? pool->usual : count, hired + number);
}

/* Returns how many workers a loop wakes: no more than there are processors beside its caller's, for which others would compete. */
static int useful(Pool* pool, int number) {
  int processors = atomic_load_explicit(&pool->processors, memory_order_relaxed);
  if (number < processors) return number;
  const int usable = usable_processors(); /* they may be more by now */
  if (processors < usable) atomic_store_explicit(&pool->processors, processors = usable, memory_order_relaxed);
  return number < processors ? number : processors - 1;
}

/* Waits until no worker uses a loop whose indices are all taken. */
static void finish(Loop* loop, Worker** hired, int number) {
  SPIN_UNTIL(atomic_load(&loop->running) == (unsigned)(loop->count - 1 - number), FINISH_NANOSECONDS)
  unsigned absent = loop->count - 1 - number;
  for (int each = 0; each < number; each++) {
    Share* offer = atomic_load(&hired[each]->offer); /* other than its share: it has begun, or has another loop */
    absent += offer == &loop->shares[each + 1] && atomic_compare_exchange_strong(&hired[each]->offer, &offer, IDLE);
  }
  if (absent > 0) atomic_fetch_sub(&loop->running, absent);
  SPIN_UNTIL(atomic_load(&loop->running) == 0, SPIN_NANOSECONDS)
  YIELD_UNTIL(atomic_load(&loop->running) == 0)
  if (atomic_load(&loop->running) == 0) return;
  unsigned seen = atomic_fetch_or(&loop->running, CALLER_SLEEPS) | CALLER_SLEEPS;
  for (; seen != CALLER_SLEEPS; seen = atomic_load(&loop->running)) wait_at(&loop->running, seen);
}

int tvmconv_pool_for(void* pool, int threads, int64_t count, Body body, void* data) {
  int parts = threads < count ? threads : count;
  if (parts > MOST_WORKERS + 1) parts = MOST_WORKERS + 1;
  if (parts < 2 || within) {
    for (int64_t index = 0; index < count; index++)
      if (body(data, index) != 0) return 1;
    return 0;
  }
  Share shares[parts];
  Worker* hired[parts];
  Loop loop = {.body = body, .data = data, .shares = shares, .count = parts, .hired = hired, .running = parts - 1};
  int open = 0;
  for (int part = 0; part < parts; part++) {
    int64_t size = (count + parts - 1) / parts, begin = part * size;
    atomic_init(&shares[part].next, begin);
    shares[part].end = begin + size < count ? begin + size : count;
    shares[part].loop = &loop;
    open += begin < count;
  }
  atomic_init(&loop.open, open);
  int number = hire(pool, shares + 1, parts - 1, hired), waking = useful(pool, number);
  if (waking > WAKES_ALL) {
    atomic_store(&loop.number, waking);
    wake_some(&loop, WAKES_FIRST);
  } else {
    for (int each = 0; each < waking; each++) wake(hired[each]);
  }
  run_shares(&loop, shares);
  finish(&loop, hired, number);
  return atomic_load(&loop.failed);
}

void* tvmconv_new_pool(int threads) {
  Pool* pool = calloc(1, sizeof *pool);
  if (pool == NULL) return NULL;
  free_lock(&pool->growing);
  pool->usual = threads - 1 < MOST_WORKERS ? threads - 1 : MOST_WORKERS;
  const int usable = usable_processors();
  atomic_init(&pool->processors, usable < threads ? threads : usable);
  return pool;
}

/* A worker is idle before its thread has come: a loop takes back what it offered to one that does not. */
void* tvmconv_new_team(int threads) {
  Pool* team = tvmconv_new_pool(threads);
  if (team == NULL) return NULL;
  team->is_team = 1;
  for (int each = 0; each < threads - 1 && each < MOST_WORKERS; each++) {
    Worker** place = &team->workers[each];
    if ((*place = new_lines(sizeof **place)) == NULL) break;
    atomic_init(&(*place)->offer, IDLE);
    atomic_init(&(*place)->asleep, 0);
  }
  return team;
}

void tvmconv_begin_team(void* pool, int threads) {
  Pool* team = pool;
  int alive = 0;
  while (alive < threads - 1 && alive < MOST_WORKERS && team->workers[alive] != NULL) alive++;
  atomic_store(&team->alive, alive);
}

void tvmconv_join_team(void* pool, int number) {
  Worker* worker = number < MOST_WORKERS ? ((Pool*)pool)->workers[number] : NULL;
  if (worker != NULL) serve(worker);
}

void tvmconv_end_team(void* pool) {
  Pool* team = pool;
  for (int each = 0; each < MOST_WORKERS && team->workers[each] != NULL; each++) {
    atomic_store(&team->workers[each]->offer, LEAVE);
    wake(team->workers[each]);
  }
}

void tvmconv_free_team(void* pool) {
  Pool* team = pool;
  for (int each = 0; each < MOST_WORKERS && team->workers[each] != NULL; each++) free_lines(team->workers[each]);
  free(team);
}

static Pool* of_process;

/* A forked child has none of the threads, whatever the parent's other threads did with them. */
static void in_child(void) {
  free_lock(&of_process->growing);
  atomic_store(&of_process->alive, 0);
}

void tvmconv_keep_pool(void* pool) {
  of_process = pool;
  at_fork(NULL, in_child);
}

/* The pool of threads by itself: loops of drawn numbers of tasks and threads by some callers at once, within others, failing, and in forked
 * children; a system that has many processors, or gives no threads. */
#define _GNU_SOURCE
#include <sched.h>

static int allowed(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}
/* Linux refuses fewer bits than the machine may have processors. */
static int affinity_of_4096(pid_t process, size_t bytes, cpu_set_t* set) {
  return 8 * bytes < 4096 ? -1 : sched_getaffinity(process, bytes, set);
}
#define sched_getaffinity affinity_of_4096
#include "threads.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static int starts = 0, gives = 1;
static int start_some(THREAD_RESULT (*run)(void*), void* argument, size_t bytes) {
  starts++;
  return gives && start_thread(run, argument, bytes);
}
#define start_thread start_some
#include "pool.c"

#define CHECK(condition) \
  if (!(condition)) printf("line %d: %s\n", __LINE__, #condition), exit(1)
#define MOST_TASKS 300

static Pool* pool;
typedef struct {
  int fails, nested;
  int seen[MOST_TASKS];
} Seen;

static int note(void* data, int64_t index) {
  Seen* seen = data;
  seen->seen[index]++;
  if (seen->nested) {
    Seen inner = {.fails = -1};
    CHECK(tvmconv_pool_for(pool, 8, 3, note, &inner) == 0 && inner.seen[0] == 1 && inner.seen[2] == 1);
  }
  for (volatile int work = index % 7 * 300; work > 0; work--)
    ;
  return index == seen->fails;
}

static int rounds;

static void* call(void* number) {
  unsigned state = (unsigned)(uintptr_t)number;
#define DRAW(below) (rand_r(&state) % (below))
  for (int round = 0; round < rounds; round++) {
    const int count = DRAW(MOST_TASKS) + 1, threads = DRAW(40) + 1;
    Seen seen = {.fails = DRAW(20) == 0 ? DRAW(count) : -1, .nested = DRAW(10) == 0};
    CHECK(tvmconv_pool_for(pool, threads, count, note, &seen) == (seen.fails >= 0));
    for (int each = 0; each < count; each++) CHECK(seen.seen[each] == 1 || (seen.fails >= 0 && seen.seen[each] == 0));
    if (DRAW(16) == 0) usleep(DRAW(8000)); /* longer than threads wait awake */
  }
  return NULL;
}

static void call_at_once(int callers) {
  pthread_t threads[8];
  for (uintptr_t each = 0; each < callers; each++) pthread_create(&threads[each], NULL, call, (void*)(each + 1));
  for (int each = 0; each < callers; each++) pthread_join(threads[each], NULL);
}

static void call_in_children(int children) {
  pthread_t caller;
  pthread_create(&caller, NULL, call, NULL);
  for (uintptr_t each = 0; each < children; each++) {
    usleep(1000);
    pid_t child = fork();
    if (child == 0) {
      alarm(60);
      rounds = 5;
      call((void*)(each + 100));
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  pthread_join(caller, NULL);
}

/* A worker that is awake before its loop says how many are hired takes nobody's place among those that are to be woken. */
static void wake_early(void) {
  Loop loop = {.number = 0};
  wake_some(&loop, WAKES_NEXT);
  CHECK(loop.woken == 0);
}

static void start_none(void) {
  Pool* other = tvmconv_new_pool(4);
  gives = starts = 0;
  for (int each = 0; each < 3; each++) {
    Seen seen = {.fails = -1};
    CHECK(tvmconv_pool_for(other, 33, 40, note, &seen) == 0 && seen.seen[39] == 1);
  }
  CHECK(starts == 1);
  gives = 1, other->refused = 0;
  Seen seen = {.fails = -1};
  CHECK(tvmconv_pool_for(other, 3, 40, note, &seen) == 0 && seen.seen[39] == 1 && starts == 3);
}

/* Rounds, callers and children. */
int main(int count, char** arguments) {
  CHECK(usable_processors() == allowed());
  pool = tvmconv_new_pool(4);
  tvmconv_keep_pool(pool);
  rounds = atoi(arguments[1]);
  call_at_once(atoi(arguments[2]));
  call_in_children(atoi(arguments[3]));
  wake_early();
  start_none();
  return 0;
}

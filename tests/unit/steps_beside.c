/* Steps of a network that may run at once, each some loops: launcher.c, with threads that note every loop and task. */
#include "launcher.c"

static const int* steps; /* of each the number of its loops, then of each loop its tasks and its size; the last is -1 */
static int step;         /* how many have begun */
static int* noted;

int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data) {
  *noted++ = -(int)count;
  for (int64_t index = 0; index < count; index++)
    if (body(data, index) != 0) return 1;
  return 0;
}
int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data) {
  return tvmconv_parallel_for(threads, count, body, data);
}
int tvmconv_by_team(int threads, int (*call)(void* data), void* data) { return call(data); }
int tvmconv_threads(void) { return 1; }

static int note(int number) {
  *noted++ = number;
  return number == 99 ? -1 : 0;
}
static int task_of_function(int index, ParallelGroupEnv* env, void* number) { return note(*(int*)number); }
static int task_of_operator(void* number, int64_t index) { return note(*(int*)number); }

/* Loops are numbered by their step and their place in it; that of size 0 is an operator's, and a task of size 99 fails. */
static int run_step(void* unused) {
  int number = 10 * ++step, loops = *steps++, status = 0;
  const int* loop = steps;
  steps += 2 * loops;
  unsigned char* work = __TVMBackendAllocWorkspace(1, 0, 100, 2, 32);
  if (loops == 0 && *steps == -1) return -1; /* the last step fails if it has no loop */
  for (; status == 0 && loops > 0; loops--, loop += 2) {
    int each = loop[1] == 99 ? 99 : number + 1;
    number++;
    if (loop[1] > 0) {
      __TVMBackendCutTasks(loop[0], 1, 0, loop[1]);
      status = __TVMBackendParallelLaunch(task_of_function, &each, 0);
    } else {
      tvmconv_share(loop[0], task_of_operator, &each);
    }
  }
  __TVMBackendFreeWorkspace(1, 0, work);
  return status;
}

/* Runs steps by so many threads; writes there what is noted: of each loop its tasks, below 0, and then the number of each. Returns the status,
 * or 1 if a workspace was not given back. */
__attribute__((visibility("default"))) int run_steps(int count, const int* which, int threads, int* place) {
  static _Alignas(64) unsigned char lent_bytes[4096];
  requested_threads = threads;
  steps = which, step = 0, noted = place;
  tvmconv_lend(lent_bytes, sizeof lent_bytes);
  int status = tvmconv_run_beside(count, run_step, NULL);
  if (status == 0 && lent != lent_bytes) return 1;
  return status;
}

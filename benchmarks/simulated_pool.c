/* A pool that runs every task on the calling thread and keeps how long each took: for what kernels would do with more threads than there are
 * cores. It is registered under the name by which libraries look for their process's pool (tvmconv/lowering/native/shared.c). */
#include <stdint.h>
#include <time.h>
#include <tvm/ffi/c_api.h>

typedef int (*Body)(void* data, int64_t index);
typedef struct {
  int (*parallel_for)(void* pool, int threads, int64_t count, Body body, void* data);
  void* pool;
  int threads;
} Threads;

enum { MOST_TASKS = 1 << 20, MOST_LOOPS = 1 << 14 };
double simulated_times[MOST_TASKS]; /* ns */
double simulated_between;           /* ns from the end of each loop to the next */
static double looks, ended;         /* what two looks at the clock take; when the last loop ended */
int64_t simulated_counts[MOST_LOOPS];
int simulated_threads[MOST_LOOPS];
int64_t simulated_tasks, simulated_loops;
const double* simulated_seconds;    /* of a network's steps, which its executor writes; UNKNOWN before; NULL: nobody asks */
int simulated_steps[MOST_LOOPS];    /* the step that each loop is of */
double simulated_walls[MOST_LOOPS]; /* s of each loop, by the executor's clock */
static const double UNKNOWN = -2;

static double wall(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

static int run(void* pool, int threads, int64_t count, Body body, void* data) {
  (void)pool;
  const int kept = simulated_loops < MOST_LOOPS && simulated_tasks + count <= MOST_TASKS;
  double* times = simulated_times + simulated_tasks;
  const int64_t loop = simulated_loops;
  const double begun = wall();
  if (kept) {
    int step = 0;
    while (simulated_seconds && simulated_seconds[step] != UNKNOWN) ++step;
    simulated_steps[loop] = step;
    if (simulated_loops > 0) simulated_between += now() - ended - looks;
    simulated_counts[simulated_loops] = count;
    simulated_threads[simulated_loops++] = threads;
    simulated_tasks += count;
  }
  for (int64_t index = 0; index < count; index++) {
    const double begin = now();
    if (body(data, index) != 0) return 1;
    const double taken = now() - begin - looks;
    if (kept) times[index] = taken > 0 ? taken : 0;
  }
  if (kept) simulated_walls[loop] = wall() - begun;
  ended = now();
  return 0;
}

static int give(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)args, (void)count;
  *result = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr};
  result->v_ptr = self;
  return 0;
}

int simulated_register(void) {
  static Threads threads = {run, NULL, 1};
  const TVMFFIByteArray name = {"tvmconv.threads.1", sizeof "tvmconv.threads.1" - 1};
  TVMFFIObjectHandle function = NULL;
  looks = 1e9;
  for (int each = 0; each < 10000; each++) {
    const double begin = now(), taken = now() - begin;
    if (taken < looks) looks = taken;
  }
  if (TVMFFIFunctionCreate(&threads, give, NULL, &function) != 0) return 1;
  return TVMFFIFunctionSetGlobal(&name, function, 0);
}

void simulated_reset(void) { simulated_tasks = simulated_loops = simulated_between = 0; }

/* A pool that runs every task on the calling thread and keeps how long each took, and what each reads of filters: for what kernels would do
 * with more threads than there are cores. It is registered under the name by which libraries look for their process's pool
 * (tvmconv/lowering/native/shared.c). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
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

/* Filters in parts of some pages, which tasks read: those of task `i` stand before `simulated_ends[i]`, behind those of the task before. */
enum { PART = 1 << 14, LINE = 64, MOST_PARTS = 1 << 23 };
enum Way { WARM, NOTE, COLD } simulated_way; /* COLD: a task finds none of what it reads in a cache, by what was noted before */
int simulated_parts[MOST_PARTS];
int64_t simulated_ends[MOST_TASKS];
static char* filters;
static size_t filter_bytes;
static int64_t parts;
static struct sigaction usual;

#ifdef __x86_64__
#define EVICT(line) __builtin_ia32_clflush(line)
#else
#define EVICT(line) __asm__ volatile("dc civac, %0" ::"r"(line) : "memory")
#endif

/* Private pages of a file that is only read may be written, others of files may not. */
static void allow(char* begin, size_t bytes) {
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) mprotect(begin, bytes, PROT_READ);
}

static void note(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  const size_t at = (size_t)((char*)info->si_addr - filters);
  if (at >= filter_bytes || parts == MOST_PARTS) {
    sigaction(SIGSEGV, &usual, NULL); /* which this instruction raises again */
    return;
  }
  const size_t part = at / PART, begin = part * PART;
  simulated_parts[parts++] = (int)part;
  allow(filters + begin, filter_bytes - begin < PART ? filter_bytes - begin : PART);
}

/* Says where filters are, whole pages. */
int simulated_watch(char* begin, size_t bytes) {
  const struct sigaction ours = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
  static int installed;
  filters = begin, filter_bytes = bytes;
  return !installed && !(installed = sigaction(SIGSEGV, &ours, &usual) == 0);
}

static void evict(int64_t task) {
  for (int64_t each = task > 0 ? simulated_ends[task - 1] : 0; each < simulated_ends[task]; each++)
    for (size_t at = (size_t)simulated_parts[each] * PART, end = at + PART; at < end && at < filter_bytes; at += LINE)
      EVICT(filters + at);
  __sync_synchronize();
}

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
    const int64_t task = simulated_tasks - count + index;
    if (kept && simulated_way == NOTE) mprotect(filters, filter_bytes, PROT_NONE);
    if (kept && simulated_way == COLD) evict(task);
    const double begin = now();
    if (body(data, index) != 0) return 1;
    const double taken = now() - begin - looks;
    if (kept) times[index] = taken > 0 ? taken : 0;
    if (kept && simulated_way == NOTE) simulated_ends[task] = parts;
  }
  if (kept && simulated_way == NOTE) allow(filters, filter_bytes); /* what is between loops reads them, too */
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

void simulated_reset(void) {
  simulated_tasks = simulated_loops = simulated_between = 0;
  if (simulated_way == NOTE) parts = 0;
}

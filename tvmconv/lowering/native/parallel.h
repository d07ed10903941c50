/* Loops whose iterations threads share. */
#include <stdint.h>

/* One iteration; returns 0, or another number if it fails. */
typedef int (*Body)(void* data, int64_t index);

/* Calls `body` with every index below `count`, by `threads` threads at most, of which the caller is one; returns 0, or another
 * number if an iteration failed, after which others may be left out. Each thread begins with a contiguous share.
 * Loops within an iteration run by one thread. */
int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data);

/* The same by the threads of GNU OpenMP, which PyTorch's are, where this process has it. */
int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data);

/* Returns the result of `call`, in one parallel region of OpenMP, whose threads wait for its loops: a loop of some microseconds begins
 * sooner than as a region of its own. */
int tvmconv_by_team(int threads, int (*call)(void* data), void* data);

/* The same by the number and kind of threads of the library's current call (launcher.c). */
int tvmconv_share(int64_t count, Body body, void* data);

/* Ends OpenMP's threads before a fork; the next region starts them again. */
void tvmconv_retire_openmp(void);

/* A pool that starts its threads when they are asked for, no more than `threads` for callers that ask for fewer; NULL if
 * there is no memory. The one that a process keeps also works in forked children; another is freed unused. */
void* tvmconv_new_pool(int threads);
void tvmconv_keep_pool(void* pool);
int tvmconv_pool_for(void* pool, int threads, int64_t count, Body body, void* data);

/* A team is a pool whose threads come by themselves: the caller, which begins and ends it, and members, which run its loops from when they
 * join to its end. Loops do not wait for members that have not joined. NULL if there is no memory. */
void* tvmconv_new_team(int threads);
void tvmconv_begin_team(void* team, int threads);
void tvmconv_join_team(void* team, int number);
void tvmconv_end_team(void* team);
void tvmconv_free_team(void* team);

/* The least of: the processors that this process may use, of more than eight one of each core, unless OMP_NUM_THREADS is set; those whose time
 * its control groups give it, rounded up; OMP_NUM_THREADS. */
int tvmconv_default_threads(void);

/* The same, read again after some seconds. */
int tvmconv_threads(void);

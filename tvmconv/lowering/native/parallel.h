/* Loops whose iterations threads share. */
#include <stdint.h>

/* One iteration; returns 0, or another number if it fails. */
typedef int (*Body)(void* data, int64_t index);

/* Calls `body` with every index below `count`, by `threads` threads at most, of which the caller is one; returns 0, or another
 * number if an iteration failed, after which others may be left out. Each thread begins with its share, which lies in a row.
 * Within an iteration it runs by one thread. */
int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data);

/* The same by the threads of GNU OpenMP, which PyTorch's are, where this process has it. */
int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data);

/* Returns what `call` does, in one parallel region, whose threads wait for its loops by OpenMP: a loop of some microseconds begins
 * sooner so than as a region of its own. */
int tvmconv_by_team(int threads, int (*call)(void* data), void* data);

/* The same by as many threads, and of such a pool, as the current call of the library has (launcher.c). */
int tvmconv_share(int64_t count, Body body, void* data);

/* Before a fork: OpenMP's threads end, and come again when they are asked for. */
void tvmconv_retire_openmp(void);

/* A pool which starts its threads when they are asked for, and not more than `threads` for callers that ask for fewer; NULL if
 * there is no memory. The one that a process keeps works in forked children, too; another is freed unused. */
void* tvmconv_new_pool(int threads);
void tvmconv_keep_pool(void* pool);
int tvmconv_pool_for(void* pool, int threads, int64_t count, Body body, void* data);

/* A team is a pool whose threads come by themselves: the caller, who begins and ends it, and members who run its loops from when they
 * join it to its end. Loops do not wait for a member that has not come. NULL if there is no memory. */
void* tvmconv_new_team(int threads);
void tvmconv_begin_team(void* team, int threads);
void tvmconv_join_team(void* team, int number);
void tvmconv_end_team(void* team);
void tvmconv_free_team(void* team);

/* The least of: the processors that this process may use, of more than eight one of each core, unless OMP_NUM_THREADS is set; those whose time
 * its control groups give it, rounded up; OMP_NUM_THREADS. */
int tvmconv_default_threads(void);

/* The same, found anew after some seconds. */
int tvmconv_threads(void);

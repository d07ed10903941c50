/* The plan of a network: what `tvmconv.network.emit.library` writes as a C file, and executor.c walks. */
#include <stdint.h>
#include <tvm/ffi/c_api.h>

/* Places of arrays of a step. WEIGHTS are in the file, ARENA in memory that one call at a time uses. */
enum { INPUT, OUTPUT, WEIGHTS, ARENA };

typedef int (*Function)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

typedef struct {
  uint32_t region;
  uint32_t number; /* of the input or output */
  uint64_t offset; /* bytes from the region's, or the input's or output's, beginning */
  DLDataType dtype;
  int32_t rank;
  const int64_t* shape;
} Argument;

typedef struct {
  Function function; /* NULL: of an If, which calls none */
  const Argument* arguments;
  int32_t count;
  uint64_t free, free_bytes; /* what of the arena nobody needs meanwhile */
  int32_t passed;            /* of an If, how many steps are passed over where its argument is false, or always if it has none */
} Step;

typedef struct {
  const Step* steps;
  int32_t step_count, input_count, output_count;
  const uint64_t* bytes; /* of each input, then of each output */
  uint64_t arena_bytes;
  const char* identity; /* which the end of the library's file repeats */
} Plan;

extern const Plan tvmconv_plan;

/* Gives this thread's calls of functions a place for their workspaces, from a cache line on; those that it does not hold, and other
 * threads', are allocated (launcher.c). NULL, 0: none. */
void tvmconv_lend(unsigned char* place, uint64_t bytes);

/* Copies an array as it is, as a step of a plan. */
int tvmconv_copy(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/* The plan of a network: what `tvmconv.network.emit.library` writes as a C file, and executor.c walks. */
#include <stdint.h>
#include <tvm/ffi/c_api.h>

/* Places of arrays of a step. WEIGHTS are in the file, ARENA in memory that one call at a time uses; NUMBER is no array; PREPARED
 * is what the first steps make of weights. */
enum { INPUT, OUTPUT, WEIGHTS, ARENA, NUMBER, PREPARED };

typedef int (*Function)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

typedef struct {
  uint32_t region;
  uint32_t number; /* of the input or output; of free extents, of the storage in the arena */
  uint64_t offset; /* bytes from the region's, or the input's or output's, beginning */
  DLDataType dtype;
  int32_t rank;
  const int64_t* shape; /* NULL: it depends on extents */
  int32_t at;           /* where it then is among the measures, or the number is */
} Argument;

typedef struct {
  Function function; /* NULL: of an If, which calls none */
  const Argument* arguments;
  int32_t count;
  uint64_t free, free_bytes; /* what of the arena nobody needs meanwhile */
  int32_t passed;            /* of an If, how many steps are passed over where its argument is false, or always if it has none */
  int32_t beside;            /* how many steps after it need nothing of it or each other, as it needs nothing of theirs */
} Step;

/* Part of a plan that depends on extents that calls give. */
typedef struct {
  int32_t extent_count;
  int32_t measure_count; /* the shapes of outputs one behind the other, those of arrays, and numbers, all at least 1 */
  int32_t storage_count; /* inputs and outputs, then what is in the arena */
  int32_t slot_count;
  /* Gives the measures, and how many elements each storage has (INT64_MAX: too many). */
  void (*measure)(const int64_t* extents, int64_t* measures, int64_t* elements);
  const uint8_t* item_bytes;     /* of each storage */
  const int32_t* slots;          /* of each in the arena: those of one slot share their bytes */
  const uint64_t workspace_bytes; /* that a step needs at most */
} Free;

typedef struct {
  const Step* steps;
  int32_t step_count, input_count, output_count;
  const uint64_t* bytes; /* of each input, then of each output */
  uint64_t arena_bytes;
  int32_t prepared_count, prepared_arguments; /* steps that run once, the first ones, and the arguments of all of them */
  uint64_t prepared_bytes;
  const char* identity; /* which the end of the library's file repeats */
  const Free* free;     /* NULL: all is fixed */
} Plan;

extern const Plan tvmconv_plan;

/* Gives this thread's calls of functions a place for their workspaces, from a cache line on; those that it does not hold, and other
 * threads', are allocated (launcher.c). NULL, 0: none. */
void tvmconv_lend(unsigned char* place, uint64_t bytes);

/* Runs so many steps by `run`, which is given `steps` and runs the next one. It is called within a loop of the step before where the loop's
 * tasks are few for the call's threads; such loops are one (launcher.c). */
int tvmconv_run_beside(int count, int (*run)(void* steps), void* steps);

/* Copies an array as it is, as a step of a plan. */
int tvmconv_copy(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

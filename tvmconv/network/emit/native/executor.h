/* A network's plan, which `tvmconv.network.emit.library` writes as a C file and executor.c executes. */
#include <stdint.h>
#include <tvm/ffi/c_api.h>

/* Regions of a step's arrays. WEIGHTS are in the file, ARENA is memory that one call at a time uses, NUMBER is a number and no array,
 * PREPARED are results of the first steps, which depend on weights alone. */
enum { INPUT, OUTPUT, WEIGHTS, ARENA, NUMBER, PREPARED };

typedef int (*Function)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

typedef struct {
  uint32_t region;
  uint32_t number; /* of the input or output; with free extents, of the storage in the arena */
  uint64_t offset; /* bytes from the beginning of the region */
  DLDataType dtype;
  int32_t rank;
  const int64_t* shape; /* NULL: it depends on free extents */
  int32_t at;           /* then the index of the shape, or of the number, among the measures */
} Argument;

typedef struct {
  Function function; /* NULL: an If */
  const Argument* arguments;
  int32_t count;
  uint64_t free, free_bytes; /* offset and size of a gap in the arena that is unused during the step */
  int32_t passed;            /* of an If: steps to skip where its argument is false, or always if it has none */
  int32_t beside;            /* of the first step of a group of independent steps: how many follow */
} Step;

/* Part of a plan that depends on free extents. */
typedef struct {
  int32_t extent_count;
  int32_t measure_count; /* shapes of outputs, one after another, of arrays, and numbers; all must be at least 1 */
  int32_t storage_count; /* inputs, outputs, then storages in the arena */
  int32_t slot_count;
  /* Computes the measures, and the number of elements of each storage (INT64_MAX: too many). */
  void (*measure)(const int64_t* extents, int64_t* measures, int64_t* elements);
  const uint8_t* item_bytes;     /* of each storage */
  const int32_t* slots;          /* of each storage in the arena: storages of a slot share its bytes */
  const uint64_t workspace_bytes; /* largest workspace of a step */
} Free;

typedef struct {
  const Step* steps;
  int32_t step_count, input_count, output_count;
  const uint64_t* bytes; /* of each input, then of each output */
  uint64_t arena_bytes;
  int32_t prepared_count, prepared_arguments; /* first steps, which run once; the total number of their arguments */
  uint64_t prepared_bytes;
  const char* identity; /* repeated in the trailer of the library's file */
  const Free* free;     /* NULL: all extents are fixed */
} Plan;

extern const Plan tvmconv_plan;

/* Lends memory, aligned to a cache line, for the workspaces of functions that this thread calls; workspaces that do not fit, and those of
 * other threads, are allocated (launcher.c). NULL, 0: none. */
void tvmconv_lend(unsigned char* place, uint64_t bytes);

/* Runs `count` steps by `run(steps)`, each call of which runs the next. Where a step's loop has few tasks for the call's threads, `run` is
 * called within it, and the loops become one (launcher.c). */
int tvmconv_run_beside(int count, int (*run)(void* steps), void* steps);

/* Copies an array, as a step of a plan. */
int tvmconv_copy(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

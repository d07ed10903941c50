/* A convolution of any batch and spatial extents, by static kernels of blocks.
 *
 * Outputs are cut into regions, each covered by blocks of one kind, those that cost least. A block's inputs, with zeros for padding,
 * are copied to where its kernel reads them, and its outputs to where they belong, if these do not lie together already. Where only some
 * taps meet data, a kernel that can sums those alone, and reads data in place. Blocks begin at places that depend on the extents
 * alone, and each output is of one block: answers have the same bits for any number of threads.
 *
 * Threads share a multiple of their number of each region's blocks; of each remaining block, they share the kernel's own tasks.
 */
#include "cover.h"

#if defined(__GNUC__) && !defined(__clang__) /* loops over a few bytes stay loops */
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#define EXPORT __attribute__((visibility("default")))
#define LINE_BYTES 64
enum { MOST_OPERANDS = 8, MOST_RANK = MOST_AXES + 2 };

extern void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
extern int (*__TVMBackendFreeWorkspace)(int, int, void*);

static int failed(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
  return -1;
}

static const DLTensor* tensor_of(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFIDLTensorPtr) return arg->v_ptr;
  if (arg->type_index == kTVMFFITensor) return (const DLTensor*)((const char*)arg->v_obj + sizeof(TVMFFIObject));
  return NULL;
}

/* ---- One block. */

/* An array of a call, as images of rows of pixels. */
typedef struct {
  char* data;
  int64_t batch, channels, extents[MOST_AXES], bytes; /* bytes of an element */
} Array;

typedef struct {
  const Family* family;
  const TVMFFIAny* args;
  Array data, residual, output;
  int64_t from[MOST_AXES]; /* the first outputs */
  int64_t first_input[MOST_AXES]; /* that the output 0 reads, of a transposed convolution the first block */
  Cover cover;
  int64_t threads; /* that share blocks */
} Run;

/* A part of an image: `extents` from `from` on, of which those from `begin` to `end` are in the image. */
typedef struct {
  int64_t from[MOST_AXES], extents[MOST_AXES], begin[MOST_AXES], end[MOST_AXES];
  int inside; /* all of them */
} Part;

static Part part_of(const Family* f, const Array* array, const int64_t* from, const int64_t* extents) {
  Part part = {.inside = 1};
  for (int axis = 0; axis < f->rank; axis++) {
    part.from[axis] = from[axis], part.extents[axis] = extents[axis];
    part.begin[axis] = least(most(0, -from[axis]), extents[axis]);
    part.end[axis] = most(least(extents[axis], array->extents[axis] - from[axis]), part.begin[axis]);
    part.inside &= part.begin[axis] == 0 && part.end[axis] == extents[axis];
  }
  return part;
}

/* Contiguous bytes of a pixel in a row, and the number of such rows for a pixel's channels. */
static int64_t pixel_bytes(const Family* f, const Array* array) { return array->bytes * (f->channels_last ? array->channels : 1); }
static int64_t planes_of(const Family* f, const Array* array) { return f->channels_last ? 1 : array->channels; }

static int64_t bytes_of(const Family* f, const Array* array, const int64_t* extents) {
  int64_t bytes = array->bytes * array->channels;
  for (int axis = 0; axis < f->rank; axis++) bytes *= extents[axis];
  return bytes;
}

static char* image_of(const Family* f, const Array* array, int64_t image) {
  return array->data + image * bytes_of(f, array, array->extents);
}

/* Returns the address of a part in its image, if it is contiguous there, or need not be; else NULL. Elements outside the image are not read. */
static char* place_of(const Family* f, const Array* array, const Part* part, int64_t image, int in_image) {
  if (!part->inside) return NULL;
  int64_t offset = 0;
  for (int axis = 0, first = planes_of(f, array) == 1; axis < f->rank; axis++) {
    offset = offset * array->extents[axis] + part->from[axis];
    if (!in_image && !first && part->extents[axis] != array->extents[axis]) return NULL;
    if (part->extents[axis] != 1) first = 0;
  }
  return image_of(f, array, image) + offset * pixel_bytes(f, array);
}

/* Copies or clears a few bytes, a multiple of an element's: rows of planes are short, for which the C library's functions take longer. */
#define FEW_BYTES 256
static inline void copy_row(char* to, const char* from, int64_t bytes) {
  if (bytes > FEW_BYTES || bytes < 16) {
    if (bytes > FEW_BYTES) {
      memcpy(to, from, bytes);
    } else {
      for (int64_t at = 0; at < bytes - 1; at += 2) __builtin_memcpy(to + at, from + at, 2);
      if (bytes & 1) to[bytes - 1] = from[bytes - 1];
    }
    return;
  }
  for (int64_t at = 0; at < bytes - 16; at += 16) __builtin_memcpy(to + at, from + at, 16);
  __builtin_memcpy(to + bytes - 16, from + bytes - 16, 16);
}
static inline void clear_row(char* to, int64_t bytes, int zero) {
  if (bytes > FEW_BYTES) {
    memset(to, zero, bytes);
  } else {
    for (int64_t at = 0; at < bytes - 1; at += 2) __builtin_memset(to + at, zero, 2);
    if (bytes & 1) to[bytes - 1] = (char)zero;
  }
}

/* Copies a part of an image to a block, with zeros, or integers' zero points, outside of the image; or the inner part back. */
static void copy(const Family* f, const Array* array, const Part* part, int64_t image, char* block, int back) {
  const int last = f->rank - 1;
  const int64_t pixel = pixel_bytes(f, array), row = part->extents[last] * pixel;
  const int64_t before = part->begin[last] * pixel, inside = (part->end[last] - part->begin[last]) * pixel;
  const int64_t depth = last > 1 ? part->extents[0] : 1, height = last > 0 ? part->extents[last - 1] : 1;
  char* from = image_of(f, array, image);
  for (int64_t plane = 0, planes = planes_of(f, array); plane < planes; plane++)
    for (int64_t z = 0; z < depth; z++)
      for (int64_t y = 0; y < height; y++, block += row) {
        const int in_depth = last < 2 || (z >= part->begin[0] && z < part->end[0]);
        const int in_height = last < 1 || (y >= part->begin[last - 1] && y < part->end[last - 1]);
        if (!in_depth || !in_height || inside == 0) {
          if (!back) clear_row(block, row, f->zero);
          continue;
        }
        int64_t offset = last > 1 ? plane * array->extents[0] + part->from[0] + z : plane;
        if (last > 0) offset = offset * array->extents[last - 1] + part->from[last - 1] + y;
        offset = offset * array->extents[last] + part->from[last] + part->begin[last];
        char* there = from + offset * pixel;
        if (back) {
          copy_row(there, block + before, inside);
        } else {
          clear_row(block, before, f->zero);
          copy_row(block + before, there, inside);
          clear_row(block + before + inside, row - before - inside, f->zero);
        }
      }
}

static int64_t lines(int64_t bytes) { return parts(bytes, LINE_BYTES) * LINE_BYTES; }

/* An array from `place` on, as a row of elements. */
static TVMFFIAny argument(const DLTensor* given, char* place, int64_t* elements, DLTensor* tensor) {
  *tensor = (DLTensor){place, given->device, 1, given->dtype, elements, NULL, 0};
  return (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = tensor};
}

/* A layout of a packed filter. */
static DLTensor part_of_filter(const Family* f, const Layout* layout, const DLTensor* packed) {
  char* place = (char*)packed->data + packed->byte_offset + layout->offset * f->packed_type.bits / 8;
  return (DLTensor){place, packed->device, layout->axes, layout->type, (int64_t*)layout->shape, NULL, 0};
}

/* Tells if all inputs that some taps of a block read are in the image. */
static int is_read_inside(const Family* f, const Array* data, const Block* block, const int64_t* inputs, const Taps* taps) {
  int inside = 1;
  for (int axis = 0; axis < f->rank; axis++) {
    const int64_t left_out = f->taps[axis] - taps[axis].end;
    inside &= inputs[axis] + taps[axis].first * f->dilations[axis] >= 0;
    inside &= inputs[axis] + block->inputs[axis] - left_out * f->dilations[axis] <= data->extents[axis];
  }
  return inside;
}

/* Moves a block that goes beyond its region back to the region's end, by `shift`, if all its inputs are in the image there. */
static void shift_inwards(const Run* run, const Region* region, const Taps* taps, int64_t* outputs, int64_t* inputs, int64_t* shift) {
  const Family* f = run->family;
  int64_t moved[MOST_AXES];
  for (int axis = 0; axis < f->rank; axis++) {
    shift[axis] = most(outputs[axis] + region->block->outputs[axis] - region->to[axis], 0);
    moved[axis] = inputs[axis] - shift[axis] * f->strides[axis];
  }
  const int inside = is_read_inside(f, &run->data, region->block, moved, taps);
  for (int axis = 0; axis < f->rank; axis++) {
    if (!inside) shift[axis] = 0;
    outputs[axis] -= shift[axis], inputs[axis] -= shift[axis] * f->strides[axis];
  }
}

/* Calls a block's kernel with its data, output and residual at `places`, which are copies of its own where `sizes` are not 0. */
static int call_block(const Run* run, const Block* block, char* const places[3], const int64_t sizes[3], const Taps* taps) {
  const Family* f = run->family;
  TVMFFIAny args[MOST_OPERANDS + 4 * MOST_AXES], result = {.type_index = kTVMFFINone};
  DLTensor tensors[2], filter, residual;
  int64_t unknown = INT32_MAX /* LARGEST in tvmconv/checks.py */, shape[MOST_RANK];
  memcpy(args, run->args, (f->operands + 1) * sizeof(TVMFFIAny));
  args[0] = argument(tensor_of(&args[0]), places[0], &unknown, &tensors[0]);
  args[f->operands] = argument(tensor_of(&args[f->operands]), places[1], &unknown, &tensors[1]);
  if (f->layouts > 1) {
    filter = part_of_filter(f, &f->layout[block->layout], tensor_of(&args[1]));
    args[1] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &filter};
  }
  if (f->residual) {
    int axes = 0;
    shape[axes++] = 1;
    if (!f->channels_last) shape[axes++] = run->residual.channels;
    for (int axis = 0; axis < f->rank; axis++) shape[axes++] = block->outputs[axis];
    if (f->channels_last) shape[axes++] = run->residual.channels;
    args[f->residual] = argument(tensor_of(&args[f->residual]), places[2], shape, &residual);
    residual.ndim = axes;
  }
  int count = f->operands + 1;
  for (int axis = 0; axis < f->rank; axis++)
    args[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = sizes[0] ? block->inputs[axis] : run->data.extents[axis]};
  for (int axis = 0; axis < f->rank; axis++)
    args[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = sizes[1] ? block->outputs[axis] : run->output.extents[axis]};
  for (int axis = 0; axis < f->rank; axis++) args[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = taps[axis].first};
  for (int axis = 0; axis < f->rank; axis++) args[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = taps[axis].end};
  return block->function(NULL, args, count, &result);
}

static int compute_block(const Run* run, const Region* region, int64_t image, int64_t number) {
  const Family* f = run->family;
  const Block* block = region->block;
  int64_t outputs[MOST_AXES], inputs[MOST_AXES];
  const Image covered = {region->from, region->to, run->data.extents, run->first_input};
  Taps taps[MOST_AXES];
  for (int axis = f->rank - 1; axis >= 0; axis--) {
    outputs[axis] = region->from[axis] + number % region->counts[axis] * block->outputs[axis];
    number /= region->counts[axis];
    inputs[axis] = f->transposed ? (outputs[axis] - run->from[axis]) / f->strides[axis] : outputs[axis] * f->strides[axis];
    inputs[axis] += run->first_input[axis];
    taps[axis] = taps_met(f, &covered, axis, outputs[axis], least(outputs[axis] + block->outputs[axis], region->to[axis]));
  }
  int64_t shift[MOST_AXES] = {0};
  if (block->by_taps) shift_inwards(run, region, taps, outputs, inputs, shift);
  Part data = part_of(f, &run->data, inputs, block->inputs), output = part_of(f, &run->output, outputs, block->outputs);
  if (block->by_taps) data.inside = is_read_inside(f, &run->data, block, inputs, taps);
  /* Regions overlap where one has blocks that go beyond it. */
  for (int axis = 0; axis < f->rank; axis++) {
    if (region->to[axis] - outputs[axis] < output.end[axis]) output.end[axis] = region->to[axis] - outputs[axis], output.inside = 0;
    if (shift[axis] > output.begin[axis]) output.begin[axis] = shift[axis], output.inside = 0;
  }
  char* places[3] = {place_of(f, &run->data, &data, image, block->data_in_image),
                     place_of(f, &run->output, &output, image, block->output_in_image), NULL};
  if (f->residual) places[2] = place_of(f, &run->residual, &output, image, 0);
  const int64_t sizes[3] = {places[0] ? 0 : lines(bytes_of(f, &run->data, block->inputs)),
                            places[1] ? 0 : lines(bytes_of(f, &run->output, block->outputs)),
                            places[2] || !f->residual ? 0 : lines(bytes_of(f, &run->residual, block->outputs))};
  const int64_t bytes = sizes[0] + sizes[1] + sizes[2];
  char* copies = NULL;
  if (bytes != 0 && (copies = __TVMBackendAllocWorkspace(kDLCPU, 0, bytes, kDLInt, 8)) == NULL) return -1;
  if (sizes[0]) copy(f, &run->data, &data, image, places[0] = copies, 0);
  if (sizes[1]) places[1] = copies + sizes[0];
  if (sizes[2]) copy(f, &run->residual, &output, image, places[2] = copies + sizes[0] + sizes[1], 0);
  int status = call_block(run, block, places, sizes, taps);
  if (status == 0 && sizes[1]) copy(f, &run->output, &output, image, places[1], 1);
  if (copies != NULL) __TVMBackendFreeWorkspace(kDLCPU, 0, copies);
  return status;
}

/* Blocks of a region, of all images, from one to another. */
static int compute(const Run* run, const Region* region, int64_t from, int64_t to) {
  int status = 0;
  for (int64_t number = from; number < to && status == 0; number++)
    status = compute_block(run, region, number / region->count, number % region->count);
  return status;
}

/* Tasks of TVM's parallel loops, of which launcher.c, or a library for C, has the threads. */
typedef struct {
  void* sync_handle;
  int32_t count;
} Tasks;
extern int (*__TVMBackendParallelLaunch)(int (*)(int, Tasks*, void*), void*, int);

/* Computes a thread's share of the blocks of each region, equal for all threads. */
static int compute_share(int task, Tasks* tasks, void* data) {
  Run* run = data;
  if (task == 0) run->threads = tasks->count;
  for (int at = 0; at < run->cover.count; at++) {
    const Region* region = &run->cover.regions[at];
    const int64_t each = region->count * run->data.batch / tasks->count;
    if (compute(run, region, task * each, (task + 1) * each) != 0) return -1;
  }
  return 0;
}

/* ---- Calls: data, filter or packed filter, the other operands, output; then the pads at the begin of each axis. */

static int read_array(const Family* f, const TVMFFIAny* arg, Array* array) {
  const DLTensor* tensor = tensor_of(arg);
  if (tensor == NULL || tensor->ndim != f->rank + 2) return 0;
  const int first = f->channels_last ? 1 : 2, axes = tensor->ndim - 2;
  *array = (Array){.data = (char*)tensor->data + tensor->byte_offset, .batch = tensor->shape[0],
                   .channels = tensor->shape[f->channels_last ? tensor->ndim - 1 : 1], .bytes = tensor->dtype.bits * tensor->dtype.lanes / 8};
  for (int axis = 0; axis < axes; axis++) array->extents[axis] = tensor->shape[first + axis];
  if (f->flat) {
    int64_t* row = &array->extents[axes - 1];
    for (int axis = 0; axis < axes - 1; axis++) *row *= array->extents[axis], array->extents[axis] = 1;
    if (f->channels_last) *row *= array->batch, array->batch = 1;
  }
  return 1;
}

static int run_family(const Family* f, const TVMFFIAny* args, int32_t num_args) {
  const int arrays = f->operands + 1;
  Run run = {.family = f, .args = args};
  int right = num_args >= arrays && read_array(f, &args[0], &run.data) && read_array(f, &args[arrays - 1], &run.output);
  right = right && (!f->residual || read_array(f, &args[f->residual], &run.residual));
  const int pads = right ? tensor_of(&args[0])->ndim - 2 : 0;
  if (!right || num_args != arrays + pads || run.data.batch != run.output.batch)
    return failed("ValueError", "arrays and pads are not those of a call of this family");
  for (int axis = 0; axis < f->rank; axis++) {
    const TVMFFIAny* pad = &args[arrays + axis];
    if (pad->type_index != kTVMFFIInt || pad->v_int64 < 0) return failed("ValueError", "a pad is no number of at least 0");
    run.first_input[axis] = -pad->v_int64;
    if (!f->transposed) continue;
    /* Blocks begin at the output of the phase of theirs. */
    const int64_t reach = pad->v_int64 - f->pads[axis], stride = f->strides[axis];
    run.from[axis] = -((reach % stride + stride) % stride);
    run.first_input[axis] = (reach + run.from[axis]) / stride;
  }
  find_cover(f, &(Image){run.from, run.output.extents, run.data.extents, run.first_input}, &run.cover);
  int64_t most_blocks = 0;
  for (int at = 0; at < run.cover.count; at++) most_blocks = most(most_blocks, run.cover.regions[at].count * run.data.batch);
  if (most_blocks > 1 && __TVMBackendParallelLaunch(compute_share, &run, 0) != 0) return -1;
  for (int at = 0; at < run.cover.count; at++) {
    const Region* region = &run.cover.regions[at];
    const int64_t count = region->count * run.data.batch;
    if (compute(&run, region, run.threads ? count - count % run.threads : 0, count) != 0) return -1;
  }
  return 0;
}

EXPORT int __tvm_ffi_tvmconv_packed(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)result;
  return run_family(tvmconv_family(), args, num_args);
}

/* Packs the filter args[0] to args[1]. */
static int pack_filter(const Family* f, void* self, const TVMFFIAny* args, TVMFFIAny* result) {
  const DLTensor *filter = tensor_of(&args[0]), *packed = tensor_of(&args[1]);
  if (filter == NULL || packed == NULL || packed->ndim != 1 || packed->shape[0] != f->packed)
    return failed("ValueError", "arrays are not a filter and a packed one of this family");
  for (int each = 0; each < f->layouts; each++) {
    const Layout* layout = &f->layout[each];
    DLTensor part = part_of_filter(f, layout, packed);
    TVMFFIAny own[2] = {args[0], {.type_index = kTVMFFIDLTensorPtr, .v_ptr = &part}};
    if (layout->pack != NULL) {
      if (layout->pack(self, own, 2, result) != 0) return -1;
      continue;
    }
    int64_t bytes = f->packed_type.bits / 8;
    for (int axis = 0; axis < layout->axes; axis++) bytes *= layout->shape[axis];
    memcpy(part.data, (char*)filter->data + filter->byte_offset, bytes);
  }
  return 0;
}

EXPORT int __tvm_ffi_tvmconv_pack(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  if (tvmconv_family()->layouts == 0) return failed("ValueError", "this family reads filters in place");
  if (num_args != 2) return failed("ValueError", "a filter is packed from one array to another");
  return pack_filter(tvmconv_family(), self, args, result);
}

EXPORT int __tvm_ffi_tvmconv_kernel(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const Family* f = tvmconv_family();
  enum { MOST_ARGUMENTS = MOST_OPERANDS + MOST_AXES };
  if (f->layouts == 0 || num_args < 2 || num_args > MOST_ARGUMENTS) return run_family(f, args, num_args);
  const int64_t bytes = f->packed * f->packed_type.bits / 8;
  void* place = __TVMBackendAllocWorkspace(kDLCPU, 0, bytes, kDLInt, 8);
  if (place == NULL) return -1;
  int64_t shape = f->packed;
  DLTensor packed = {place, {kDLCPU, 0}, 1, f->packed_type, &shape, NULL, 0};
  TVMFFIAny changed[MOST_ARGUMENTS], packing[2];
  memcpy(changed, args, num_args * sizeof(TVMFFIAny));
  changed[1] = packing[1] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &packed};
  packing[0] = args[1];
  int status = pack_filter(f, self, packing, result);
  if (status == 0) status = run_family(f, changed, num_args);
  __TVMBackendFreeWorkspace(kDLCPU, 0, place);
  return status;
}

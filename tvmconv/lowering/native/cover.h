/* Choose the blocks of a family that cover outputs at least cost (family.c). */
#include <string.h>

#include "family.h"

/* A region is cut into one of whole blocks and one for the rest of each axis, or at both ends of an axis where padding is read. */
enum { MOST_PIECES = 3, MOST_REGIONS = MOST_PIECES * MOST_PIECES * MOST_PIECES };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* Extents fit 32 bits, whose quotients take half as long. */
static int64_t parts(int64_t extent, int64_t part) { return ((uint32_t)extent + (uint32_t)part - 1) / (uint32_t)part; }

/* Outputs from..to, of data of some extents; the input that output 0 reads first, before data where there is padding. */
typedef struct {
  const int64_t *from, *to, *extents, *first_input;
} Image;

/* Taps along an axis, the last of them before `end`. */
typedef struct {
  int64_t first, end;
} Taps;

/* Outputs from..to along each axis, covered by blocks of one kind. */
typedef struct {
  const Block* block;
  int64_t from[MOST_AXES], to[MOST_AXES], counts[MOST_AXES], count;
} Region;

typedef struct {
  double cost;
  int count;
  Region regions[MOST_REGIONS];
} Cover;

/* Taps by which some of the outputs from..to along an axis meet data; all of a transposed convolution, and where none does. */
static Taps taps_met(const Family* f, const Image* image, int axis, int64_t from, int64_t to) {
  Taps met = {0, f->taps[axis]};
  if (f->transposed || met.end == 1) return met;
  const int64_t first = image->first_input[axis] + from * f->strides[axis];
  const int64_t last = image->first_input[axis] + (to - 1) * f->strides[axis], behind = image->extents[axis] - first;
  if (last <= -f->spans[axis] || behind <= 0) return met;
  if (last < 0) met.first = parts(-last, f->dilations[axis]);
  if (behind < f->spans[axis]) met.end = parts(behind, f->dilations[axis]);
  return met.first < met.end ? met : (Taps){0, f->taps[axis]};
}

/* Sets the block of a region that costs least there, and returns what it costs. */
static double set_block(const Family* f, const Image* image, Region* region) {
  int64_t from[MOST_AXES], first[MOST_AXES], end[MOST_AXES]; /* inputs that the first output reads first, by all taps and by those, and last */
  double share = 1, best = 0;
  for (int axis = 0; axis < f->rank; axis++) {
    const Taps met = taps_met(f, image, axis, region->from[axis], region->to[axis]);
    if (met.end - met.first != f->taps[axis]) share *= (double)(met.end - met.first) / (double)f->taps[axis];
    from[axis] = image->first_input[axis] + region->from[axis] * f->strides[axis];
    first[axis] = from[axis] + met.first * f->dilations[axis], end[axis] = from[axis] + (met.end - 1) * f->dilations[axis];
  }
  region->block = NULL;
  for (int each = 0; each < f->blocks; each++) {
    const Block* block = &f->block[each];
    int64_t count = 1, inside = 1;
    for (int axis = 0; axis < f->rank; axis++) {
      const int64_t along = parts(region->to[axis] - region->from[axis], block->outputs[axis]);
      count *= along;
      if (f->transposed) continue;
      /* The first reads what is before data, the last what is behind it; by ranges of taps it is moved back to the region's end. */
      const int64_t size = region->to[axis] - region->from[axis], whole = along * block->outputs[axis], stride = f->strides[axis];
      const int64_t begin = block->by_taps ? first[axis] + (along == 1 ? size - whole : 0) * stride : from[axis];
      const int64_t last = block->by_taps ? end[axis] + (size - 1) * stride : from[axis] + (whole - 1) * stride + f->spans[axis] - 1;
      inside *= most(along - (begin < 0) - (last >= image->extents[axis]), 0);
    }
    double cost = count * (block->cost + (block->by_taps ? share : 1) * block->sum_cost);
    if (!f->transposed) cost += (count - inside) * block->copy_cost;
    if (region->block != NULL && cost >= best) continue;
    best = cost, region->block = block, region->count = count;
  }
  for (int axis = 0; axis < f->rank; axis++)
    region->counts[axis] = parts(region->to[axis] - region->from[axis], region->block->outputs[axis]);
  return best;
}

/* Cuts all outputs along some axes, whose bits are set, at both ends of those that all taps meet data by. */
static Cover cut_at_padding(const Family* f, const Image* image, int axes, double most_cost) {
  int64_t cuts[MOST_AXES][MOST_PIECES + 1];
  int pieces[MOST_AXES], count = 1;
  for (int axis = 0; axis < f->rank; axis++) {
    const int64_t from = image->from[axis], to = image->to[axis], stride = f->strides[axis];
    const int64_t before = -image->first_input[axis], inside = image->extents[axis] - f->spans[axis] + before;
    const int64_t met = before > 0 ? least(parts(before, stride), to) : from;
    const int64_t end = inside < 0 ? from : least(inside / stride + 1, to);
    const int64_t all[MOST_PIECES + 1] = {from, least(met, end), most(met, end), to};
    pieces[axis] = 0, cuts[axis][0] = from;
    for (int at = 1; at <= MOST_PIECES; at++)
      if (all[at] > cuts[axis][pieces[axis]] && ((axes >> axis & 1) || at == MOST_PIECES)) cuts[axis][++pieces[axis]] = all[at];
    count *= pieces[axis];
  }
  Cover cover = {.count = 0};
  for (int number = 0; number < count && cover.cost < most_cost; number++) {
    Region* region = &cover.regions[cover.count++];
    for (int axis = f->rank - 1, left = number; axis >= 0; left /= pieces[axis], axis--)
      region->from[axis] = cuts[axis][left % pieces[axis]], region->to[axis] = cuts[axis][left % pieces[axis] + 1];
    cover.cost += set_block(f, image, region);
  }
  return cover;
}

/* Covers by whole blocks of a kind, and behind them along each axis by a region for what is left. */
static Cover cut_behind(const Family* f, const Image* image, const Block* block, double most_cost) {
  Cover cover = {.count = 1, .cost = most_cost};
  Region* whole = cover.regions;
  Family alone = *f;
  alone.blocks = 1, alone.block = block;
  for (int axis = 0; axis < f->rank; axis++) {
    const int64_t count = (uint32_t)(image->to[axis] - image->from[axis]) / (uint32_t)block->outputs[axis];
    if (count == 0) return cover;
    whole->from[axis] = image->from[axis], whole->to[axis] = image->from[axis] + count * block->outputs[axis];
  }
  cover.cost = set_block(&alone, image, whole);
  /* What is left along an axis has all outputs of the axes before, and those of whole blocks of the axes behind. */
  for (int axis = 0; axis < f->rank && cover.cost < most_cost; axis++) {
    if (whole->to[axis] == image->to[axis]) continue;
    Region* region = &cover.regions[cover.count++];
    for (int other = 0; other < f->rank; other++)
      region->from[other] = image->from[other], region->to[other] = other < axis ? image->to[other] : whole->to[other];
    region->from[axis] = whole->to[axis], region->to[axis] = image->to[axis];
    cover.cost += set_block(f, image, region);
  }
  return cover;
}

/* The cheapest cover. */
static Cover cover_of(const Family* f, const Image* image) {
  int padded = 0;
  for (int axis = 0; axis < f->rank && !f->transposed; axis++) {
    const int64_t last = image->first_input[axis] + (image->to[axis] - 1) * f->strides[axis] + f->spans[axis] - 1;
    if (f->taps[axis] > 1 && (image->first_input[axis] < 0 || last >= image->extents[axis])) padded |= 1 << axis;
  }
  Cover best = cut_at_padding(f, image, 0, 1e300);
  for (int axes = padded; axes != 0; axes = (axes - 1) & padded) {
    Cover cover = cut_at_padding(f, image, axes, best.cost);
    if (cover.cost < best.cost) best = cover;
  }
  for (int each = 0; each < f->blocks; each++) {
    Cover cover = cut_behind(f, image, &f->block[each], best.cost);
    if (cover.cost < best.cost) best = cover;
  }
  return best;
}

/* Covers of the last sizes: to choose one may take longer than a small kernel. Who finds them in use chooses anew. */
enum { REMEMBERED = 4, NUMBERS = 4 * MOST_AXES };
static struct {
  int64_t size[NUMBERS];
  Cover cover;
} remembered[REMEMBERED];
static int last_remembered;
static char in_use;

static void copy_cover(Cover* to, const Cover* from) { memcpy(to, from, (const char*)&from->regions[from->count] - (const char*)from); }

/* Not by memcmp, of which compilers make a function that bionic lacks. */
static int differ(const int64_t* one, const int64_t* other) {
  int64_t bits = 0;
  for (int at = 0; at < NUMBERS; at++) bits |= one[at] ^ other[at];
  return bits != 0;
}

static void find_cover(const Family* f, const Image* image, Cover* cover) {
  int64_t size[NUMBERS] = {0};
  for (int axis = 0, at = 0; axis < f->rank; axis++) {
    size[at++] = image->from[axis], size[at++] = image->to[axis];
    size[at++] = image->extents[axis], size[at++] = image->first_input[axis];
  }
  const int is_mine = !__atomic_test_and_set(&in_use, __ATOMIC_ACQUIRE);
  int at = is_mine ? 0 : REMEMBERED;
  while (at < REMEMBERED && differ(remembered[at].size, size)) at++;
  if (at < REMEMBERED) {
    copy_cover(cover, &remembered[at].cover);
  } else {
    *cover = cover_of(f, image);
  }
  if (is_mine && at == REMEMBERED) {
    last_remembered = (last_remembered + 1) % REMEMBERED;
    memcpy(remembered[last_remembered].size, size, sizeof(size));
    copy_cover(&remembered[last_remembered].cover, cover);
  }
  if (is_mine) __atomic_clear(&in_use, __ATOMIC_RELEASE);
}

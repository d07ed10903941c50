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

/* Outputs from..to along an axis: blocks of each kind that cover them, and those that read nothing outside of data; of all taps those that
 * meet data, as a share. A region's costs are of products of these: the sides are few, and the regions many. */
typedef struct {
  int64_t from, to, along[MOST_BLOCKS], inside[MOST_BLOCKS];
  double share;
} Side;

static Side side_of(const Family* f, const Image* image, int axis, int64_t from, int64_t to) {
  const Taps met = taps_met(f, image, axis, from, to);
  const int64_t stride = f->strides[axis], size = to - from, read = image->first_input[axis] + from * stride;
  const int64_t first = read + met.first * f->dilations[axis], end = read + (met.end - 1) * f->dilations[axis];
  Side side = {.from = from, .to = to, .share = (double)(met.end - met.first) / (double)f->taps[axis]};
  for (int each = 0; each < f->blocks; each++) {
    const Block* block = &f->block[each];
    const int64_t along = parts(size, block->outputs[axis]), whole = along * block->outputs[axis];
    /* The first covers padding before data, the last padding behind it; by ranges of taps it is moved back to the region's end. */
    const int64_t begin = block->by_taps ? first + (along == 1 ? size - whole : 0) * stride : read;
    const int64_t last = block->by_taps ? end + (size - 1) * stride : read + (whole - 1) * stride + f->spans[axis] - 1;
    side.along[each] = along;
    side.inside[each] = f->transposed ? along : most(along - (begin < 0) - (last >= image->extents[axis]), 0);
  }
  return side;
}

/* Costs of a region of some sides by blocks of one kind. */
static double cost_of(const Family* f, const Side* const* sides, int each) {
  int64_t count = 1, inside = 1;
  double share = 1;
  for (int axis = 0; axis < f->rank; axis++) {
    count *= sides[axis]->along[each], inside *= sides[axis]->inside[each];
    share *= sides[axis]->share;
  }
  const Block* block = &f->block[each];
  return count * (block->cost + (block->by_taps ? share : 1) * block->sum_cost) + (count - inside) * block->copy_cost;
}

/* Adds a region of some sides by blocks of one kind to a cover. */
static void add_region(const Family* f, Cover* cover, const Side* const* sides, int each, double cost) {
  Region* region = &cover->regions[cover->count++];
  cover->cost += cost, region->block = &f->block[each], region->count = 1;
  for (int axis = 0; axis < f->rank; axis++) {
    region->from[axis] = sides[axis]->from, region->to[axis] = sides[axis]->to;
    region->count *= region->counts[axis] = sides[axis]->along[each];
  }
}

/* Adds a region of some sides by the blocks that cost least. */
static void add_cheapest(const Family* f, Cover* cover, const Side* const* sides) {
  int best = 0;
  double least_cost = 1e300;
  for (int each = 0; each < f->blocks; each++) {
    const double cost = cost_of(f, sides, each);
    if (cost < least_cost) least_cost = cost, best = each;
  }
  add_region(f, cover, sides, best, least_cost);
}

/* Sides of all outputs along an axis, and of the pieces that it is cut into at both ends of those that all taps meet data by. */
typedef struct {
  Side all, piece[MOST_PIECES];
  int pieces;
} Axis;

static void cut_axis(const Family* f, const Image* image, int axis, Axis* cut) {
  const int64_t from = image->from[axis], to = image->to[axis], stride = f->strides[axis];
  cut->all = side_of(f, image, axis, from, to), cut->pieces = 0;
  const int64_t before = -image->first_input[axis], inside = image->extents[axis] - f->spans[axis] + before;
  if (f->transposed || f->taps[axis] == 1 || (before <= 0 && inside >= (to - 1) * stride)) return;
  const int64_t met = before > 0 ? least(parts(before, stride), to) : from;
  const int64_t end = inside < 0 ? from : least(inside / stride + 1, to);
  const int64_t cuts[MOST_PIECES + 1] = {from, least(met, end), most(met, end), to};
  for (int at = 0; at < MOST_PIECES; at++)
    if (cuts[at + 1] > cuts[at]) cut->piece[cut->pieces++] = side_of(f, image, axis, cuts[at], cuts[at + 1]);
}

/* Cuts all outputs along the axes whose bits are set; stops where that costs more than the best cover so far. */
static void cut_at_padding(const Family* f, Axis* cuts, int axes, double most_cost, Cover* cover) {
  int count = 1;
  for (int axis = 0; axis < f->rank; axis++) count *= axes >> axis & 1 ? cuts[axis].pieces : 1;
  cover->count = 0, cover->cost = 0;
  for (int number = 0; number < count && cover->cost < most_cost; number++) {
    const Side* sides[MOST_AXES];
    for (int axis = f->rank - 1, left = number; axis >= 0; axis--) {
      sides[axis] = &cuts[axis].all;
      if (axes >> axis & 1) sides[axis] = &cuts[axis].piece[left % cuts[axis].pieces], left /= cuts[axis].pieces;
    }
    add_cheapest(f, cover, sides);
  }
}

/* Covers by whole blocks of a kind, and behind them along each axis by a region for what is left. */
static void cut_behind(const Family* f, const Image* image, Axis* cuts, int each, double most_cost, Cover* cover) {
  Side whole[MOST_AXES];
  const Side* sides[MOST_AXES];
  double calls = 1;
  for (int axis = 0; axis < f->rank; axis++)
    calls *= (uint32_t)(image->to[axis] - image->from[axis]) / (uint32_t)f->block[each].outputs[axis];
  cover->count = 0, cover->cost = calls == 0 ? most_cost : calls * f->block[each].cost;
  if (cover->cost >= most_cost) return;
  cover->cost = 0;
  for (int axis = 0; axis < f->rank; axis++) {
    const int64_t from = image->from[axis], size = image->to[axis] - from;
    whole[axis] = side_of(f, image, axis, from, from + size - (uint32_t)size % (uint32_t)f->block[each].outputs[axis]);
    sides[axis] = &whole[axis];
  }
  add_region(f, cover, sides, each, cost_of(f, sides, each));
  /* What is left along an axis has all outputs of the axes before, and those of whole blocks of the axes behind. */
  for (int axis = 0; axis < f->rank && cover->cost < most_cost; axis++) {
    if (whole[axis].to != image->to[axis]) {
      const Side left = side_of(f, image, axis, whole[axis].to, image->to[axis]);
      sides[axis] = &left;
      add_cheapest(f, cover, sides);
    }
    sides[axis] = &cuts[axis].all;
  }
}

static void copy_cover(Cover* to, const Cover* from) { memcpy(to, from, (const char*)&from->regions[from->count] - (const char*)from); }

/* Sets the cheapest cover. */
static void choose_cover(const Family* f, const Image* image, Cover* best) {
  Axis cuts[MOST_AXES];
  Cover cover;
  int padded = 0;
  for (int axis = 0; axis < f->rank; axis++) {
    cut_axis(f, image, axis, &cuts[axis]);
    if (cuts[axis].pieces) padded |= 1 << axis;
  }
  cut_at_padding(f, cuts, 0, 1e300, best);
  for (int axes = padded; axes != 0; axes = (axes - 1) & padded) {
    cut_at_padding(f, cuts, axes, best->cost, &cover);
    if (cover.cost < best->cost) copy_cover(best, &cover);
  }
  for (int each = 0; each < f->blocks; each++) {
    cut_behind(f, image, cuts, each, best->cost, &cover);
    if (cover.cost < best->cost) copy_cover(best, &cover);
  }
}

/* Covers of the last sizes: to choose one may take longer than a small kernel. A call that finds them in use chooses its own. */
enum { REMEMBERED = 4, NUMBERS = 4 * MOST_AXES };
static struct {
  int64_t size[NUMBERS];
  Cover cover;
} remembered[REMEMBERED];
static int last_remembered;
static char in_use;

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
    choose_cover(f, image, cover);
  }
  if (is_mine && at == REMEMBERED) {
    last_remembered = (last_remembered + 1) % REMEMBERED;
    memcpy(remembered[last_remembered].size, size, sizeof(size));
    copy_cover(&remembered[last_remembered].cover, cover);
  }
  if (is_mine) __atomic_clear(&in_use, __ATOMIC_RELEASE);
}

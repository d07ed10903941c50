/* Choose the blocks of a family that cover outputs at least cost (family.c). */
#include "family.h"

/* A region is cut into one of whole blocks, and one for the rest of each axis. */
enum { MOST_REGIONS = MOST_AXES + 1 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t parts(int64_t extent, int64_t part) { return (extent + part - 1) / part; }

/* Outputs from..to along each axis, covered by blocks of one kind. */
typedef struct {
  const Block* block;
  int64_t from[MOST_AXES], to[MOST_AXES], counts[MOST_AXES], count;
} Region;

typedef struct {
  Region regions[MOST_REGIONS];
  int count;
  double cost;
} Cover;

/* Adds the region from..to, by the block that costs least there. */
static void add_region(const Family* f, Cover* cover, const int64_t* from, const int64_t* to) {
  double best = 0;
  Region* region = &cover->regions[cover->count++];
  for (int each = 0; each < f->blocks; each++) {
    const Block* block = &f->block[each];
    int64_t count = 1;
    for (int axis = 0; axis < f->rank; axis++) count *= parts(to[axis] - from[axis], block->outputs[axis]);
    if (each != 0 && count * block->cost >= best) continue;
    best = count * block->cost;
    region->block = block, region->count = count;
  }
  for (int axis = 0; axis < f->rank; axis++) {
    region->from[axis] = from[axis], region->to[axis] = to[axis];
    region->counts[axis] = parts(to[axis] - from[axis], region->block->outputs[axis]);
  }
  cover->cost += best;
}

/* The cheapest of: one region; whole blocks of a kind, and behind them along each axis a region for what is left. */
static Cover cover_of(const Family* f, const int64_t* from, const int64_t* to) {
  Cover best = {.count = 0};
  add_region(f, &best, from, to);
  for (int each = 0; each < f->blocks; each++) {
    Cover cover = {.count = 1};
    Region* whole = cover.regions;
    int64_t ends[MOST_AXES] = {0};
    *whole = (Region){.block = &f->block[each], .count = 1};
    for (int axis = 0; axis < f->rank; axis++) {
      const int64_t size = f->block[each].outputs[axis];
      whole->from[axis] = from[axis];
      whole->counts[axis] = (to[axis] - from[axis]) / size;
      whole->to[axis] = ends[axis] = from[axis] + whole->counts[axis] * size;
      whole->count *= whole->counts[axis];
    }
    if (whole->count == 0) continue;
    cover.cost = whole->count * f->block[each].cost;
    /* What is left along an axis has all outputs of the axes before, and those of whole blocks of the axes behind. */
    for (int axis = 0; axis < f->rank && cover.cost < best.cost; axis++) {
      if (ends[axis] == to[axis]) continue;
      int64_t begin[MOST_AXES], end[MOST_AXES];
      for (int other = 0; other < f->rank; other++) begin[other] = from[other], end[other] = other < axis ? to[other] : ends[other];
      begin[axis] = ends[axis], end[axis] = to[axis];
      add_region(f, &cover, begin, end);
    }
    if (cover.cost < best.cost) best = cover;
  }
  return best;
}

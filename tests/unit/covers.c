/* The cost of a cover as families' libraries choose it, twice: the second is remembered. */
#include "cover.h"

__attribute__((visibility("default"))) double cost_of_cover(const Family* f, const int64_t* outputs, const int64_t* extents, const int64_t* first) {
  const int64_t from[MOST_AXES] = {0};
  const Image image = {from, outputs, extents, first};
  Cover covers[2];
  find_cover(f, &image, &covers[0]);
  find_cover(f, &image, &covers[1]);
  int64_t all = 1, covered = 0;
  for (int axis = 0; axis < f->rank; axis++) all *= outputs[axis];
  for (int at = 0; at < covers[1].count; at++) {
    int64_t size = 1;
    for (int axis = 0; axis < f->rank; axis++) size *= covers[1].regions[at].to[axis] - covers[1].regions[at].from[axis];
    covered += size;
  }
  return covers[0].cost == covers[1].cost && covered == all ? covers[1].cost : -1;
}

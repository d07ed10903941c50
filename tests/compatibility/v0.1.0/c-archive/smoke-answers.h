/* What model gives for the integers that smoke.c draws, as tvmconv computed it when it wrote this. */
enum { SAMPLES = 16, ADDED_RANGE = 8, FACTORS = 6 };
static const float factors[] = {-1.0f, -0.5f, 0.25f, 0.5f, 1.0f, 2.0f};
struct answer {
  const char *name;
  int data_range, filter_range, dense; /* dense: of 2^24 */
  int exact;
  unsigned long long checksum;
  double error; /* below 0: not known */
  double samples[SAMPLES];
};
static const struct answer kernel_answers[] = {
    {"conv2d-n1-i4x8x8-o8x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias-relu", 32, 32, 16777216, 0, 13312900239196543935ULL, 8e-05, {0.0, 0.0, 0.0, 0.0, 1122.9993896484375, 2965.99951171875, 41.9991455078125, 645.000244140625, 0.0, 0.0, 1283.0003662109375, 81.99966430664062, 713.0001220703125, 0.0, 0.0, 0.0}},
    {"conv2d-n1-i8x4x4-o4x4x4-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32", 32, 32, 16777216, 1, 18181446697724607504ULL, 0.0, {815.0, -777.0, 1019.0, -28.0, 537.0, 747.0, -205.0, 9.0, -73.0, 669.0, 1555.0, -1835.0, -1078.0, -1087.0, -553.0, 712.0}}};
static const struct answer layer_answers[] = {
    {"model_first", 32, 32, 16777216, 0, 5038364794029805776ULL, 8e-05, {33.00004577636719, 0.0, 74.00011444091797, 157.9998779296875, 89.00003051757812, 0.0, 75.9998779296875, 0.0, 0.0, 135.99954223632812, 0.0, 0.0, 23.999954223632812, 0.0, 51.999847412109375, 0.0}},
    {"model_second", 32, 32, 16777216, 0, 1254309611682221511ULL, 4e-05, {-62.0, -120.0, -22.0, 117.0, -77.0, -122.0, -164.0, 32.0, 22.0, 122.0, 172.0, 46.0, 59.0, 41.0, 23.0, 52.0}},
    {"", 0, 0, 0, 0, 0ULL, -1.0, {0}}};

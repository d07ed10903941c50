// Calls kernels of the library `tested` by its header for C++; prints what is wrong, and ends with how many things are.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tested.hpp"

namespace tested = tvmconv::tested;
using kernel = tested::conv2d_24x14x14_40_3x3_bias;
using half = tested::conv2d_n2_19x9x7_21_3x3_f16_bias;

static int bad = 0;

static void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++bad;
}

template <class Function>
static int status_of(Function function, const char* part) {
  try {
    function();
  } catch (const tested::error& caught) {
    check(std::string(caught.what()).find(part) != std::string::npos, caught.what());
    return caught.status();
  }
  return 0;
}

int main() {
  std::vector<float> data(kernel::data_elements), filter(kernel::filter_elements), output(kernel::output_elements);
  std::array<float, kernel::bias_elements> bias{};
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < filter.size(); ++i) filter[i] = static_cast<float>(i % 5) - 2;
  const std::vector<float> constant = data;
  std::vector<float> expected(output.size());
  check(tested_conv2d_24x14x14_40_3x3_bias(data.data(), filter.data(), bias.data(), expected.data()) == tested_OK, "C");
  const auto same = [&](const char* what) {
    check(std::memcmp(output.data(), expected.data(), sizeof(float) * output.size()) == 0, what);
    output.assign(output.size(), -1);
  };

  kernel::run(data, filter, bias, output);
  same("filter as it is");
  kernel first(filter);
  const kernel layer = std::move(first);
  layer(constant, bias, output);
  same("packed");
  layer({data.data(), data.size()}, bias, output, tested::options{2});
  same("two threads");
  tested::buffer room(tested_conv2d_24x14x14_40_3x3_bias_packed_workspace_bytes(3)), little(1);
  tested::options how{3, [](int count, const auto& task) {
                        std::vector<std::thread> threads;
                        for (int i = 0; i < count; ++i) threads.emplace_back(task, i);
                        for (auto& each : threads) each.join();
                      }, &room};
  layer(data, bias, output, how);
  same("threads and a workspace of one's own");
  how.workspace = &little;
  check(status_of([&] { layer(data, bias, output, how); }, "workspace") == tested_ERROR_WORKSPACE, "little workspace");
  check(status_of([&] { layer(bias, bias, output); }, "data has 40 elements, not 4704") == tested_ERROR_ARGUMENT, "size");
  check(status_of([&] { kernel{bias}; }, "filter has 40") == tested_ERROR_ARGUMENT, "size of a filter");
  how = {2, [](int, const auto&) { throw std::out_of_range("mine"); }};
  try {
    layer(data, bias, output, how);
    check(false, "no exception of a loop");
  } catch (const std::out_of_range& caught) {
    check(std::string(caught.what()) == "mine", caught.what());
  }
  how = {2, [](int, const auto&) {}};
  check(status_of([&] { layer(data, bias, output, how); }, "task") == tested_ERROR_THREADS, "tasks left out");

  std::vector<std::uint16_t> bits(half::data_elements, 0x3C00), weights(half::filter_elements, 0x3C00);
  std::vector<std::uint16_t> zeros(half::bias_elements), sums(half::output_elements);
  half{weights}(bits, zeros, sums);
  check(sums[10 * 21] == 0x5958, "a sum of 9 * 19 ones in f16");  // the second row's fourth pixel
  return bad;
}

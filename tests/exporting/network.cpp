// Calls the network `net` by its header for C++; prints what is wrong, and ends with how many things are.
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

#include "net.hpp"

namespace net = tvmconv::net;

struct Answer {
  std::vector<float> y = std::vector<float>(net::outputs::y_elements);
  std::array<std::int64_t, net::outputs::i_elements> i{};
  bool operator==(const Answer& other) const { return y == other.y && i == other.i; }
};

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  std::vector<float> x(net::inputs::x_elements);
  float z = 0;
  file.read(reinterpret_cast<char*>(x.data()), static_cast<std::streamsize>(x.size() * sizeof(float)));
  file.read(reinterpret_cast<char*>(&z), sizeof z);
  int bad = 0;
  const auto check = [&](bool right, const char* what) {
    if (!right) bad += std::printf("wrong: %s\n", what) > 0;
  };
  net::network network;
  Answer expected;
  const void* inputs[] = {x.data(), &z};
  void* outputs[] = {expected.y.data(), expected.i.data()};
  net_network* opened = nullptr;
  check(net_open(&opened) == net_OK && net_run(opened, inputs, outputs) == net_OK, "C");
  net_close(opened);

  Answer answer;
  network.run({x, {&z, 1}}, {answer.y, answer.i});
  check(answer == expected, "run");
  const net::network moved = std::move(network);
  std::vector<std::thread> callers;
  std::vector<Answer> answers(3);
  for (auto& each : answers) callers.emplace_back([&] { moved.run({x, {&z, 1}}, {each.y, each.i}, {2}); });
  for (auto& each : callers) each.join();
  for (const auto& each : answers) check(each == expected, "one of several threads");
  int tasks = 0;
  answer = {};
  moved.run({x, {&z, 1}}, {answer.y, answer.i}, {3, [&](int count, const auto& task) {
                                                   tasks += count;
                                                   while (count-- > 0) task(count);
                                                 }});
  check(answer == expected && tasks > 1, "threads of one's own");
  try {
    moved.run({{x.data(), 3}, {&z, 1}}, {answer.y, answer.i});
    check(false, "an input that is too small");
  } catch (const net::error& error) {
    check(error.status() == net_ERROR_ARGUMENT && std::string(error.what()).find("x has 3 elements") == 0, error.what());
  }
  try {
    moved.run({x, {&z, 1}}, {answer.y, answer.i}, {2, [](int, const auto&) { throw 7; }});
    check(false, "a loop that throws");
  } catch (int thrown) {
    check(thrown == 7, "another exception");
  }
  return bad;
}

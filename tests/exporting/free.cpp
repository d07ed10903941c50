// Calls the network `net`, of x (n 3 h w) and b (5), by its header for C++; prints what is wrong, and ends with how many things are.
#include <cstdio>
#include <string>
#include <vector>

#include "net.hpp"

namespace net = tvmconv::net;

int main() {
  int bad = 0;
  const auto check = [&](bool right, const std::string& what) {
    if (!right) bad += std::printf("wrong: %s\n", what.c_str()) > 0;
  };
  const net::network network;
  const std::vector<float> b(5, 2);
  for (const net::extents size : {net::extents{1, 6, 9}, net::extents{2, 64, 33}, net::extents{1, 6, 9}}) {
    const std::vector<float> x(static_cast<std::size_t>(size.n * 3 * size.h * size.w), 1);
    const net::output_shapes shapes = network.output_extents(size);
    check(shapes.y[0] == size.n && shapes.y[2] == size.h / 2 && shapes.z[1] == 5, "output_extents");
    std::vector<float> y(static_cast<std::size_t>(shapes.y[0] * shapes.y[1] * shapes.y[2] * shapes.y[3])), again(y.size());
    std::vector<float> z(static_cast<std::size_t>(size.n * 5));
    network.run(size, {x, b}, {y, z});
    net::buffer workspace(network.workspace_bytes(size));
    network.run(size, {x, b}, {again, z}, {2, {}, &workspace});
    check(y == again && y[0] != 0, "run");
    try {
      network.run({size.n, size.h, size.w + 1}, {x, b}, {y, z});
      check(false, "an input of another size");
    } catch (const net::error& error) {
      check(error.status() == net_ERROR_ARGUMENT && std::string(error.what()).find("x has ") == 0, error.what());
    }
  }
  try {
    network.workspace_bytes({1, 7, 9});
    check(false, "no multiple");
  } catch (const net::error& error) {
    check(error.status() == net_ERROR_EXTENTS && std::string(error.what()).find("pad it by 1 to 8") != std::string::npos, error.what());
  }
  return bad;
}

// Prints the positions of bright spots in a PPM of 128x96; runs the model on threads of this program.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "spots.hpp"

namespace {

constexpr int height = 96, width = 128, pixels = height * width;

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }
  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Returns when task(index) has returned for each index below count.
  void run(int count, std::function<void(int)> task) {
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = std::move(task);
    next_ = 0;
    count_ = unfinished_ = count;
    wake_.notify_all();
    take(lock);
    done_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  void take(std::unique_lock<std::mutex>& lock) {
    while (next_ < count_) {
      const int index = next_++;
      lock.unlock();
      task_(index);
      lock.lock();
      if (--unfinished_ == 0) done_.notify_one();
    }
  }
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!closing_) {
      take(lock);
      wake_.wait(lock, [this] { return closing_ || next_ < count_; });
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::function<void(int)> task_;
  int next_ = 0, count_ = 0, unfinished_ = 0;
  bool closing_ = false;
  std::vector<std::thread> workers_;
};

std::vector<float> read_picture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int columns = 0, rows = 0, most = 0;
  file >> kind >> columns >> rows >> most;
  file.get();
  std::vector<unsigned char> bytes(3 * pixels);
  if (kind != "P6" || columns != width || rows != height || most != 255 ||
      !file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw std::runtime_error(path + " is no PPM (P6) of " + std::to_string(width) + "x" + std::to_string(height) + " with 255 levels");
  std::vector<float> planes(bytes.size());  // channels first, from 0 to 1
  for (std::size_t i = 0; i < bytes.size(); ++i) planes[i % 3 * pixels + i / 3] = static_cast<float>(bytes[i]) / 255;
  return planes;
}

}  // namespace

namespace spots = tvmconv::spots;

int main(int count, char** arguments) try {
  if (count != 2) throw std::runtime_error("usage: detect PICTURE.ppm");
  Pool pool(2);
  const std::vector<float> picture = read_picture(arguments[1]);
  std::vector<float> map(pixels);
  const spots::network network;
  network.run({picture}, {map}, {pool.threads(), [&](int tasks, const auto& task) { pool.run(tasks, task); }});
  for (int y = 1; y < height - 1; ++y)
    for (int x = 1; x < width - 1; ++x) {
      const float here = map[static_cast<std::size_t>(y * width + x)];
      bool highest = here > 0.5f;
      for (int near = 0; near < 9; ++near) {
        const float other = map[static_cast<std::size_t>((y + near / 3 - 1) * width + x + near % 3 - 1)];
        highest = highest && (near < 4 ? other < here : other <= here);  // one of equal neighbours
      }
      if (highest) std::printf("%d %d %.2f\n", x, y, static_cast<double>(here));
    }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "detect: %s\n", error.what());
  return 1;
}

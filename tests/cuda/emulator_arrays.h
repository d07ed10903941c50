// Arrays in "device" memory: one end of each lies at a page that cannot be accessed.

#pragma once
#include <sys/mman.h>

#include <cstdio>

#include "emulator.h"

// Stands for a pointer of whatever type a device function takes.
struct Pointer {
  char* address;
  template <typename T>
  operator T*() const { return reinterpret_cast<T*>(address); }
};

class Array {
 public:
  explicit Array(size_t bytes) : bytes_(bytes) {}

  // Allocates it with the contents of file `name`, or NaN if there is none: at the end of accessible memory, but for
  // less than the alignment of the widest vector, or at its beginning.
  void place(const char* name, bool at_beginning) {
    accessible_ = (bytes_ + kPage - 1) / kPage * kPage;
    char* memory = static_cast<char*>(
        mmap(nullptr, accessible_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    begin_ = memory + kPage;
    if (accessible_ && mprotect(begin_, accessible_, PROT_READ | PROT_WRITE)) fail("there is too little memory");
    memset(begin_, 0xFF, accessible_);
    data_ = at_beginning ? begin_ : begin_ + (accessible_ - bytes_) / kAlignment * kAlignment;
    if (FILE* file = fopen(name, "rb"); file && strcmp(name, "output")) {
      if (fread(data_, 1, bytes_, file) != bytes_) fail("a file is too short");
      fclose(file);
    }
  }

  Pointer at(size_t offset) const { return {data_ + offset}; }

  void check(const char* name) const {
    for (const char* p = begin_; p < begin_ + accessible_; ++p)
      if ((p < data_ || p >= data_ + bytes_) && *p != '\xFF') {
        fprintf(stderr, "%s: ", name);
        fail("bytes beside the array are written");
      }
  }

  void save(const char* name) const {
    FILE* file = fopen(name, "wb");
    if (!file || fwrite(data_, 1, bytes_, file) != bytes_ || fclose(file)) fail("the output cannot be written");
  }

 private:
  static constexpr size_t kPage = 4096, kAlignment = 16;
  size_t bytes_, accessible_ = 0;
  char *begin_ = nullptr, *data_ = nullptr;
};

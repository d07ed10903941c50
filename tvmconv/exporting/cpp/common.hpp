// tvmconv_name.hpp: tvmconv_name.h for C++17 and later, by tvmconv VERSION. Errors are exceptions. See docs/c.md of tvmconv.
#ifndef tvmconv_name_HPP
#define tvmconv_name_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "tvmconv_name.h"

namespace tvmconv::tvmconv_space {

// An error of the library, with the number that the C function returned.
class error : public ::std::runtime_error {
 public:
  error(int status, const ::std::string& text) : ::std::runtime_error(text), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

#ifdef __cpp_lib_span
template <class T>
using span = ::std::span<T>;
#else
// std::span of C++20, as far as this header needs it: a view of an array.
template <class T>
class span {
 public:
  span() = default;
  span(T* data, ::std::size_t size) : data_(data), size_(size) {}
  // From an array, or a container with data() and size(); an output must be an lvalue.
  template <class Container, class Element = ::std::remove_pointer_t<decltype(::std::data(::std::declval<Container&>()))>,
            class = ::std::enable_if_t<::std::is_convertible_v<Element (*)[], T (*)[]> &&
                                       (::std::is_const_v<T> || ::std::is_lvalue_reference_v<Container>)>>
  span(Container&& container) : data_(::std::data(container)), size_(::std::size(container)) {}
  T* data() const noexcept { return data_; }
  ::std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  ::std::size_t size_ = 0;
};
#endif

// Memory that begins at a cache line.
class buffer {
 public:
  explicit buffer(::std::size_t bytes)
      : memory_(::operator new(bytes, ::std::align_val_t{tvmconv_name_ALIGNMENT})), bytes_(bytes) {}
  void* data() const noexcept { return memory_.get(); }
  ::std::size_t size() const noexcept { return bytes_; }

 private:
  struct release {
    void operator()(void* memory) const noexcept { ::operator delete(memory, ::std::align_val_t{tvmconv_name_ALIGNMENT}); }
  };
  ::std::unique_ptr<void, release> memory_;
  ::std::size_t bytes_;
};

// Runs task(index) once for each index below count, in any threads, and returns when all have returned. It may throw.
using parallel_loop = ::std::function<void(int count, const ::std::function<void(int index)>& task)>;

// Options of a call: the number of threads, 0: the library's default; and the loop that runs tasks, empty: the library's.
struct options {
  int threads = 0;
  parallel_loop parallel_for = {};
  WORKSPACE_OPTION
};

namespace detail {

inline void check(int status) {
  if (status != tvmconv_name_OK) throw error(status, ERROR_TEXT);
}

// Returns the array of a span after checking its number of elements.
template <class T>
T* at(span<T> array, ::std::size_t elements, const char* name) {
  if (array.size() != elements)
    throw error(tvmconv_name_ERROR_ARGUMENT, ::std::string(name) + " has " + ::std::to_string(array.size()) +
                                                 " elements, not " + ::std::to_string(elements));
  return array.data();
}

// Calls function(const tvmconv_name_call*), which returns a status, with some options.
template <class Function>
void invoke(const options& how, Function function) {
  struct hook {
    const parallel_loop& run;
    ::std::exception_ptr thrown;
  } hook{how.parallel_for, nullptr};
  tvmconv_name_call call{};
  call.threads = how.threads;
  WORKSPACE_CALL
  if (how.parallel_for) {
    call.context = &hook;
    call.parallel_for = [](void* context, int count, void (*task)(void* argument, int index), void* argument) -> int {
      auto& own = *static_cast<struct hook*>(context);
      try {
        own.run(count, [task, argument](int index) { task(argument, index); });
        return 0;
      } catch (...) {
        own.thrown = ::std::current_exception();
        return 1;
      }
    };
  }
  const int status = function(static_cast<const tvmconv_name_call*>(&call));
  if (hook.thrown) ::std::rethrow_exception(hook.thrown);
  check(status);
}

}  // namespace detail

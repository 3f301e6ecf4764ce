// LH_CHECK asserts conditions that must hold whatever users, peers and the network send. A
// violation is a bug of this program: the process reports it and aborts, in all builds.
//
//   LH_CHECK(stages.size() == plan.stages_size(), "run {} has {} stages", id, stages.size());
//
// Do not validate input with it: bad bytes and requests from outside get a Status. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace longhaul {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace longhaul

// LH_CHECK(condition, "format with {}", arguments...). Formats the message only on failure.
#define LH_CHECK(condition, ...)                                                           \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::longhaul::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                      \
  } while (false)

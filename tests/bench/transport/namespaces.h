// Two network namespaces joined by a shaped line, for as long as the object lives. Needs root.
#ifndef LONGHAUL_TESTS_BENCH_TRANSPORT_NAMESPACES_H_
#define LONGHAUL_TESTS_BENCH_TRANSPORT_NAMESPACES_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul::bench {

// Runs a command to its end; its words on standard error become the message.
Status RunCommand(const std::vector<std::string>& arguments);

class Namespaces {
 public:
  // kFailedPrecondition naming what is missing.
  static StatusOr<std::unique_ptr<Namespaces>> Create();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;
  ~Namespaces();

  // Shapes both ends' egress.
  Status Shape(uint64_t bits_per_second);
  const std::string& name(int end) const { return names_[end]; }
  // "10.77.0.1".
  static std::string Ip(int end);

 private:
  Namespaces();
  Status SetUp();
  std::array<std::string, 2> names_;
};

// A program in a namespace, its standard output in a pipe. Killed when the object goes, or when
// this process dies.
class Process {
 public:
  static StatusOr<std::unique_ptr<Process>> Start(const std::vector<std::string>& arguments);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();
  // The next line of its output. kCancelled on SIGINT or SIGTERM, kUnavailable if it ended,
  // kDeadlineExceeded.
  StatusOr<std::string> ReadLine(double limit_seconds);

 private:
  Process(pid_t pid, int fd) : pid_(pid), fd_(fd) {}
  const pid_t pid_;
  const int fd_;
  std::string buffer_;
};

}  // namespace longhaul::bench

#endif  // LONGHAUL_TESTS_BENCH_TRANSPORT_NAMESPACES_H_

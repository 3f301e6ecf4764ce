// Two network namespaces joined by a shaped line, for as long as the object lives; a line with a
// delay or loss goes through a third one, in which the relay of local clusters holds and drops
// packets. Needs root.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/file/link_quality.h"

namespace longhaul::bench {

// Runs a command to its end; its words on standard error become the message.
Status RunCommand(const std::vector<std::string>& arguments);

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

class Namespaces {
 public:
  // `path`: each way. `relay_program`: what becomes the relay when it is called with `--relay
  // SOCKET`. kFailedPrecondition naming what is missing.
  static StatusOr<std::unique_ptr<Namespaces>> Create(const LinkQuality& path,
                                                      const std::string& relay_program);
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;
  ~Namespaces();

  // Shapes both ends' egress.
  Status Shape(uint64_t bits_per_second);
  const std::string& name(int end) const { return names_[end]; }
  // "10.77.0.1".
  static std::string Ip(int end);

 private:
  explicit Namespaces(const LinkQuality& path);
  Status SetUp(const std::string& relay_program);
  Status Join();
  Status JoinByRelay(const std::string& relay_program);

  const LinkQuality path_;
  std::array<std::string, 2> names_;
  const std::string between_;       // the relay's namespace
  const std::string relay_socket_;  // of its requests
  std::unique_ptr<Process> relay_;
};

}  // namespace longhaul::bench

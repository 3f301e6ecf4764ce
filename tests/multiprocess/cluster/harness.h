// Runs `longhaul cluster` as a program of its own, and looks for what it leaves behind.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/temp_dir.h"

namespace longhaul::testing {

// A program that runs, its output in files. Killed with the object if it is still there.
class Running {
 public:
  explicit Running(const std::vector<std::string>& command);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Both outputs so far, in order.
  std::string output() const;
  // Until its output contains `text`; false if it ends or the limit passes before.
  bool WaitForOutput(std::string_view text, absl::Duration limit = absl::Seconds(30));
  void Signal(int signal);
  // Its exit code, 128 + n for a signal n. Fails the test and kills it after the limit.
  int Wait(absl::Duration limit = absl::Seconds(60));

 private:
  bool Ended();
  TempDir folder_;
  int pid_ = -1;
  int code_ = -1;
};

// A cluster with a name and a runtime folder of this test's own. The destructor takes it down.
class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest();
  ~ClusterTest() override;

  // `longhaul cluster <arguments> --name <name>`.
  std::vector<std::string> Command(std::vector<std::string> arguments) const;
  // "up" with the stand-in daemons (or `daemons`) and `more`.
  std::vector<std::string> Up(std::vector<std::string> more = {}) const;
  // Runs it to its end and expects the exit code; its output.
  std::string Expect(int exit_code, const std::vector<std::string>& command) const;
  nlohmann::json Status() const;
  // Status' entry of worker N, and its address there.
  nlohmann::json Worker(int worker) const;
  std::string Address(int worker) const;
  // A command: traffic.py inside a worker's namespace.
  std::vector<std::string> Traffic(int worker, const std::string& mode, const std::string& address,
                                   int number) const;
  // What one end of a TCP connection received, in bits a second.
  struct Received {
    double goodput = 0;  // payload, the first second left out
    // On the wire since the other end began, less what a bucket may have held: a busy machine can
    // only lower it.
    double line_rate = 0;
  };
  // TCP both ways at once: what `to`, which listens, received and what `from` did. Zeros, and the
  // test has failed, where there was no traffic.
  std::pair<Received, Received> DuplexTraffic(int from, int to, int seconds) const;
  // Fails the test if any namespace, interface, process or file of the cluster is there.
  void ExpectNothingLeft() const;
  const std::string& name() const { return name_; }
  std::string network(int worker) const;  // namespace of worker N
  std::string runtime_folder() const { return runtime_.path(); }

 private:
  std::string name_;
  TempDir runtime_;
};

// 0, or 77 (ctest: skipped) after printing what this machine lacks.
int SkipCode();

}  // namespace longhaul::testing

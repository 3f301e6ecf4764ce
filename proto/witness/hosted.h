// A witness inside another program: joins and begins to serve as soon as a coordinator answers, and
// says in the log what goes wrong. Thread: one of its own, and those of the witness.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "proto/witness/witness.h"

namespace longhaul::witness {

class HostedWitness {
 public:
  explicit HostedWitness(Options options);
  ~HostedWitness();
  HostedWitness(const HostedWitness&) = delete;
  HostedWitness& operator=(const HostedWitness&) = delete;

  // Not OK: it will never serve, or serves no more.
  Status failure() const;

 private:
  void Loop();

  const Options options_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::unique_ptr<Witness> witness_;
  Status failure_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::witness

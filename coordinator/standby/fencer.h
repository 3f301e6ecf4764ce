// Ensures that only one of two coordinators commands the workers after a takeover. Each takeover
// begins a new term (leadership.h). The new coordinator fences its predecessor: it calls the
// predecessor until the predecessor has heard that its term is over. A coordinator that had a
// standby asks the standby whether the standby has taken over, and stops commanding if so.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/standby/leadership.h"
#include "proto/identity/rotation.h"

namespace longhaul::coordinator {

// Asks the coordinator at `address` (host:port) for its term. Blocks for at most `limit`.
// `trusted`: certificates (PEM) of the authorities of both. kFailedPrecondition: the address
// belongs to a standby that has not taken over. Other errors: the call failed, so the term is
// unknown.
StatusOr<uint64_t> AskTerm(const std::string& address, const std::string& trusted,
                           absl::Duration limit);

class Fencer {
 public:
  // Starts a thread, which works until the object is destroyed or leadership->failure() is not OK.
  // The thread reads predecessor and standby from `leadership`, and reports a newer term to it
  // (Yield). `address`: host:port at which this coordinator serves. `leadership` must outlive this
  // object. The destructor waits for a call in progress, which takes at most a few seconds.
  Fencer(std::string state_dir, std::string address, Authorities authorities,
         Leadership* leadership);
  ~Fencer();

 private:
  void Loop();
  void AskStandby(const std::string& standby);
  // OK: the predecessor knows that its term is over.
  Status Tell(const std::string& predecessor);

  const std::string state_dir_, address_;
  const Authorities authorities_;
  Leadership* const leadership_;
  std::mutex mutex_;  // guards closing_
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator

// Settles which of two coordinators commands when neither follows the other. After a takeover the
// new coordinator fences its predecessor: as soon as the predecessor is back, it is told that its
// term is over. A coordinator that had a standby asks the standby whether it has taken over.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/standby/leadership.h"
#include "proto/identity/authority.h"

namespace longhaul::coordinator {

// Asks the coordinator at `address` for its term. `authority`: the certificate authority of both.
// kFailedPrecondition: the address belongs to a standby that has not taken over. Other errors: the
// call failed, so the term is unknown.
StatusOr<uint64_t> AskTerm(const std::string& address, const Authority& authority,
                           absl::Duration limit);

class Fencer {
 public:
  // Works on a thread of its own, until it is destroyed or leadership->failure() is not OK.
  // `address`: where this coordinator serves. `leadership` must outlive this object.
  Fencer(std::string state_dir, std::string address, Authority authority, Leadership* leadership);
  ~Fencer();

 private:
  void Loop();
  void AskStandby(const std::string& standby);
  // OK: the predecessor knows that its term is over.
  Status Tell(const std::string& predecessor);

  const std::string state_dir_, address_;
  const Authority authority_;
  Leadership* const leadership_;
  std::mutex mutex_;  // guards closing_
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator

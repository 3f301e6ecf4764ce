// Decides when an upload is given up because too little of it comes. Pure; not thread-safe.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "coordinator/state/member_limits.h"

namespace longhaul::coordinator {

class UploadPace {
 public:
  // Gives the upload up when fewer than kLeastUploadBytes have come within `idle`.
  UploadPace(MonoTime now, absl::Duration idle) : idle_(idle), ends_(now + idle) {}
  // More bytes have come.
  void Came(uint64_t bytes, MonoTime now) {
    bytes_ += bytes;
    if (bytes_ < kLeastUploadBytes) return;
    bytes_ = 0;
    ends_ = now + idle_;
  }
  // When the upload ends, unless more comes before.
  MonoTime ends() const { return ends_; }

 private:
  absl::Duration idle_;
  MonoTime ends_;
  uint64_t bytes_ = 0;  // since `ends_` was set
};

}  // namespace longhaul::coordinator

// Keeps the newest training messages of this worker in host memory, as evidence where the two ends
// of an edge report different digests. The oldest messages go first.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::worker {

struct KeptMessage {
  Epoch epoch;
  EdgeId edge{0};
  Direction direction = Direction::kForward;
  bool sent = false;  // else received
  Step step{0};
  Slice slice;
  std::span<const std::byte> bytes;   // as on the line, without headers
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
};

class MessageKeeper {
 public:
  // Forgets the messages of another run.
  void BeginRun(const RunId& run);
  // Keeps the message by reference. `most_bytes`: of all kept messages together.
  void Keep(KeptMessage message, uint64_t most_bytes);
  // Copies the message, where its buffer is scarce.
  void KeepCopy(KeptMessage message, uint64_t most_bytes);
  // Writes the messages of this step over this edge that are still kept into `folder`, which is
  // made if needed. Each has a file: "epoch1-step14-edge1-forward-sent-microbatch3-slice0.blob".
  // Returns their number; 0 if the kept messages are of another run. Errors: by errno.
  StatusOr<uint32_t> Write(const RunId& run, Step step, EdgeId edge,
                           const std::string& folder) const;
  uint64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  RunId run_;
  std::deque<KeptMessage> kept_;
  uint64_t bytes_ = 0;
};

}  // namespace longhaul::worker

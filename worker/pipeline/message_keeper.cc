#include "worker/pipeline/message_keeper.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace longhaul::worker {

void MessageKeeper::BeginRun(const RunId& run) {
  const std::lock_guard lock(mutex_);
  if (run == run_) return;
  run_ = run;
  kept_.clear();
  bytes_ = 0;
}

void MessageKeeper::Keep(KeptMessage message, uint64_t most_bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ += message.bytes.size();
  kept_.push_back(std::move(message));
  while (bytes_ > most_bytes) {
    bytes_ -= kept_.front().bytes.size();
    kept_.pop_front();
  }
}

void MessageKeeper::KeepCopy(KeptMessage message, uint64_t most_bytes) {
  auto copy =
      std::make_shared<const std::vector<std::byte>>(message.bytes.begin(), message.bytes.end());
  message.bytes = *copy;
  message.owner = std::move(copy);
  Keep(std::move(message), most_bytes);
}

uint64_t MessageKeeper::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

StatusOr<uint32_t> MessageKeeper::Write(const RunId& run, Step step, EdgeId edge,
                                        const std::string& folder) const {
  std::vector<KeptMessage> found;
  {
    const std::lock_guard lock(mutex_);
    if (run != run_) return 0;
    for (const KeptMessage& one : kept_) {
      if (one.step == step && one.edge == edge) found.push_back(one);
    }
  }
  if (found.empty()) return 0;
  LH_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const KeptMessage& one : found) {
    const std::string path =
        fmt::format("{}/epoch{}-step{}-edge{}-{}-{}-microbatch{}-slice{}.blob", folder,
                    one.epoch.value(), one.step.value(), one.edge.value(),
                    one.direction == Direction::kForward ? "forward" : "backward",
                    one.sent ? "sent" : "received", one.slice.microbatch.value(), one.slice.index);
    const std::string_view bytes(reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size());
    LH_RETURN_IF_ERROR(WriteFileAtomic(path, bytes, 0600));
  }
  return static_cast<uint32_t>(found.size());
}

}  // namespace longhaul::worker

// Any bytes as messages of replica 0 to replica 1. The first byte chooses the forms; then come
// messages, each behind u16 bytes. Headers get this layout's fingerprint, so that what is behind
// them is read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "base/fuzz/target.h"
#include "transport/replicas/fuzz/fuzzed_stage.h"

namespace {

using namespace longhaul::replicas;  // NOLINT(google-build-using-namespace)

// What is sent must be a message.
class CheckedOutbox final : public Outbox {
 public:
  longhaul::Status Send(uint32_t /*to*/, longhaul::replicas::MessageKind /*kind*/,
                        std::vector<std::byte> message) override {
    if (!ParseMessage(message).ok()) std::abort();
    return absl::OkStatus();
  }
};

constexpr size_t kFingerprintAt = 24;

}  // namespace

LH_FUZZ_TARGET(replicas_message) {
  if (size == 0) return false;
  CheckedOutbox outbox;
  FuzzedStage stage(data[0], 1, &outbox);
  std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  bool taken = false;
  while (rest.size() >= 2) {
    const size_t wanted = std::to_integer<size_t>(rest[0]) | std::to_integer<size_t>(rest[1]) << 8;
    rest = rest.subspan(2);
    const auto bytes = rest.first(std::min(wanted, rest.size()));
    rest = rest.subspan(bytes.size());
    std::vector<std::byte> message(bytes.begin(), bytes.end());
    if (message.size() >= kMessageHeaderBytes) {
      for (size_t k = 0; k < 8; ++k) {
        message[kFingerprintAt + k] = static_cast<std::byte>(stage.fingerprint() >> 8 * k & 0xff);
      }
    }
    if (!stage.Take(0, std::move(message)).ok()) return taken;
    taken = true;
  }
  return taken;
}

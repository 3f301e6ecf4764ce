#include "coordinator/state/workers/secrets.h"

#include <fmt/core.h>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kHashBytes = 32;

// The tag is binary and comes last, so no two calls with different arguments hash the same text.
std::string SecretOf(std::string_view link_secret, std::string_view what, uint64_t number,
                     std::string_view tag) {
  return HmacSha256(link_secret, fmt::format("{} {} of {}", what, number, tag));
}

}  // namespace

void SealAssignment(const Lead& lead, Assignment* assignment) {
  assignment->term = lead.term;
  assignment->tenure = lead.tenure;
  assignment->hash.clear();
  assignment->hash = absl::HexStringToBytes(Sha256Hex(ToProto(*assignment).SerializeAsString()));
}

bool IsSealed(const Assignment& assignment) {
  return assignment.hash.size() == kHashBytes;
}

std::string LinksSecret(std::string_view link_secret, std::string_view hash) {
  return HmacSha256(link_secret, fmt::format("links of {}", hash));
}

std::string EdgeSecret(std::string_view link_secret, std::string_view hash, EdgeId edge) {
  return SecretOf(link_secret, "edge", edge.value(), hash);
}

std::string ProbeSecret(std::string_view link_secret, std::string_view tag, uint64_t probe) {
  return SecretOf(link_secret, "probe", probe, tag);
}

std::string TransferSecret(std::string_view link_secret, std::string_view tag, uint64_t check) {
  return SecretOf(link_secret, "shards", check, tag);
}

}  // namespace longhaul::coordinator

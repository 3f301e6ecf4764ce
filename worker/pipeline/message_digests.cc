#include "worker/pipeline/message_digests.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace longhaul::worker {

uint64_t DigestOf(DigestKind kind, std::span<const std::byte> bytes) {
  if (kind != DigestKind::kSha256) return Checksum64(bytes);
  const std::string hex =
      Sha256Hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  constexpr size_t kDigits = 2 * sizeof(uint64_t);
  uint64_t digest = 0;
  std::from_chars(hex.data(), hex.data() + kDigits, digest, 16);
  return digest;
}

void MessageDigests::Add(Step step, std::span<const std::byte> bytes, Direction* to) {
  const uint64_t digest = DigestOf(kind_, bytes);
  const std::lock_guard lock(mutex_);
  to->tensors[step].push_back(digest);
}

void MessageDigests::SetWord(Step step, std::span<const std::byte> bytes, Direction* to) {
  const uint64_t digest = DigestOf(kind_, bytes);
  const std::lock_guard lock(mutex_);
  to->words[step] = digest;
}

MessageDigests::OfStep MessageDigests::Take(Step step, Direction* from) {
  std::vector<uint64_t> all;
  {
    const std::lock_guard lock(mutex_);
    auto& tensors = from->tensors;
    if (const auto found = tensors.find(step); found != tensors.end()) {
      all = std::move(found->second);
    }
    tensors.erase(tensors.begin(), tensors.upper_bound(step));
    auto& words = from->words;
    if (const auto word = words.find(step); word != words.end()) all.push_back(word->second);
    words.erase(words.begin(), words.upper_bound(step));
  }
  OfStep of_step{.messages = static_cast<uint32_t>(all.size()), .digests = {}};
  const size_t group = (all.size() + kMostDigestsOfEdge - 1) / kMostDigestsOfEdge;
  if (group <= 1) {
    of_step.digests = std::move(all);
    return of_step;
  }
  for (size_t first = 0; first < all.size(); first += group) {
    const auto part = std::span(all).subspan(first, std::min(group, all.size() - first));
    of_step.digests.push_back(DigestOf(kind_, std::as_bytes(part)));
  }
  return of_step;
}

}  // namespace longhaul::worker

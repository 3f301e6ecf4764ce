// Digests of the training messages that one end of an edge sends and receives. Both ends of an edge
// see the same bytes of a message, so their digests are equal unless one of them errs or lies.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/ids.h"
#include "run/file/verify_spec.h"

namespace longhaul::worker {

// At most so many digests of a step, an edge and a direction are reported. Of more messages, groups
// have one digest together (v1::EdgeDigests).
inline constexpr uint32_t kMostDigestsOfEdge = 256;

// The digest of bytes. `kind` is not kNone.
uint64_t DigestOf(DigestKind kind, std::span<const std::byte> bytes);

class MessageDigests {
 public:
  explicit MessageDigests(DigestKind kind) : kind_(kind) {}

  // Adds the next message of the step; messages of one direction come in order. `bytes`: as they
  // are on the line, without headers.
  void AddSent(Step step, std::span<const std::byte> bytes) { Add(step, bytes, &sent_); }
  void AddReceived(Step step, std::span<const std::byte> bytes) { Add(step, bytes, &received_); }

  // Set the step's one message without a tensor: the gradient norm, or the decision. Its digest is
  // the last of the step, whenever it is set. `bytes`: what of it follows from the training.
  void SetSentWord(Step step, std::span<const std::byte> bytes) { SetWord(step, bytes, &sent_); }
  void SetReceivedWord(Step step, std::span<const std::byte> bytes) {
    SetWord(step, bytes, &received_);
  }

  struct OfStep {
    uint32_t messages = 0;
    std::vector<uint64_t> digests;  // of messages or groups, at most kMostDigestsOfEdge
  };
  // Return what was added for this step, and forget it with all earlier steps.
  OfStep TakeSent(Step step) { return Take(step, &sent_); }
  OfStep TakeReceived(Step step) { return Take(step, &received_); }

 private:
  struct Direction {
    std::map<Step, std::vector<uint64_t>> tensors;
    std::map<Step, uint64_t> words;
  };
  void Add(Step step, std::span<const std::byte> bytes, Direction* to);
  void SetWord(Step step, std::span<const std::byte> bytes, Direction* to);
  OfStep Take(Step step, Direction* from);

  const DigestKind kind_;
  std::mutex mutex_;
  Direction sent_, received_;
};

}  // namespace longhaul::worker

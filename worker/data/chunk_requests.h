// The chunks that this side has requested from another worker and not yet received. The other
// worker may be hostile: every answer is checked against a request, and takes no more memory than
// the requested chunk.
//
//   const uint32_t request = requests.Begin(bytes);
//   ... requests.Take(request, piece), or requests.TakeNotHere(request) ...
//   if (requests.StateOf(request) == State::kWhole) chunk = requests.End(request);
//
// Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"

namespace longhaul::worker {

class ChunkRequests {
 public:
  enum class State : uint8_t { kComing, kWhole, kNotHere };

  // Begins a request; they are numbered from 0. `bytes`: the chunk's length, at least 1.
  uint32_t Begin(uint64_t bytes);
  // State of a request between Begin and End.
  State StateOf(uint32_t request) const { return open_.at(request).state; }
  uint64_t BytesOf(uint32_t request) const { return open_.at(request).taken; }
  // Ends a request and gives what has arrived. Later pieces of it are dropped.
  std::vector<std::byte> End(uint32_t request);
  // Requests that are not answered or not ended.
  size_t open() const { return open_.size(); }

  // kInvalidArgument: there is no such request.
  Status Take(uint32_t request, std::span<const std::byte> piece);
  Status TakeNotHere(uint32_t request);

 private:
  struct Request {
    uint64_t bytes = 0, taken = 0;
    State state = State::kComing;
    bool ended = false;
    std::vector<std::byte> got;
  };
  StatusOr<Request*> Find(uint32_t request);
  // Records that the answer is complete.
  void Finish(uint32_t request, State state);

  uint32_t next_ = 0;
  std::map<uint32_t, Request> open_;
};

}  // namespace longhaul::worker

// Tracks the requests by which this worker asks one other worker for chunks of data sets, and
// assembles the answers, which arrive in pieces. The other worker may be hostile: an answer that
// belongs to no request is refused, and no answer takes more memory than the requested chunk.
//
//   const uint32_t request = requests.Begin(bytes);
//   ... requests.Take(request, piece), or requests.TakeNotHere(request) ...
//   if (requests.StateOf(request) == State::kWhole) chunk = requests.End(request);
//
// Sends and receives nothing itself. Not thread-safe.
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
  // kComing: the answer is incomplete. kWhole: all bytes have arrived. kNotHere: the other worker
  // does not have the chunk.
  enum class State : uint8_t { kComing, kWhole, kNotHere };

  // Begins a request and returns its number; the first number is 0. `bytes`: the chunk's length, at
  // least 1. Allocates memory for `bytes` bytes.
  uint32_t Begin(uint64_t bytes);
  // Return the state of a request, and the number of bytes that have arrived for it. Call them only
  // between Begin and End.
  State StateOf(uint32_t request) const { return open_.at(request).state; }
  uint64_t BytesOf(uint32_t request) const { return open_.at(request).taken; }
  // Ends a request and returns the bytes that have arrived, even if some are missing. Pieces of an
  // incomplete answer that arrive later are accepted and dropped.
  std::vector<std::byte> End(uint32_t request);
  // Number of requests whose answer is incomplete, or for which End was not called yet.
  size_t open() const { return open_.size(); }

  // Take: the other worker has sent the next piece of the chunk. TakeNotHere: the other worker says
  // that it does not have the chunk. kInvalidArgument: no such request waits for an answer, the
  // pieces have more bytes than the chunk, or "not here" came after a piece.
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
  // Records that the answer is complete. The caller must not use the request any more.
  void Finish(uint32_t request, State state);

  uint32_t next_ = 0;
  std::map<uint32_t, Request> open_;
};

}  // namespace longhaul::worker

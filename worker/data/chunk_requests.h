// What this side has asked another worker for and not got yet. What comes may be of a hostile
// worker: it is held against what was asked, and none of it takes more memory than that.
//
//   const uint32_t request = requests.Begin(bytes);
//   ... requests.Take(request, piece), or requests.TakeNotHere(request) ...
//   if (requests.StateOf(request) == State::kWhole) chunk = requests.End(request);
//
// Pure; not thread-safe.
#ifndef LONGHAUL_WORKER_DATA_CHUNK_REQUESTS_H_
#define LONGHAUL_WORKER_DATA_CHUNK_REQUESTS_H_

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

  // Numbers requests from 0 on. `bytes`: of the chunk, at least one.
  uint32_t Begin(uint64_t bytes);
  // Of one that has begun and has not ended.
  State StateOf(uint32_t request) const { return open_.at(request).state; }
  uint64_t BytesOf(uint32_t request) const { return open_.at(request).taken; }
  // Gives what has come. What still comes of it is dropped.
  std::vector<std::byte> End(uint32_t request);
  // Those that have begun and were not answered, ended or not, and those that have not ended.
  size_t open() const { return open_.size(); }

  // kInvalidArgument: nobody asked for that.
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
  // The answer is here.
  void Finish(uint32_t request, State state);

  uint32_t next_ = 0;
  std::map<uint32_t, Request> open_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_DATA_CHUNK_REQUESTS_H_

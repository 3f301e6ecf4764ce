#include "worker/data/chunk_requests.h"

#include <utility>

#include "base/check.h"

namespace longhaul::worker {

uint32_t ChunkRequests::Begin(uint64_t bytes) {
  LH_CHECK(bytes > 0, "an empty chunk is asked for");
  Request& request = open_[next_];
  request.bytes = bytes;
  request.got.reserve(bytes);
  return next_++;
}

std::vector<std::byte> ChunkRequests::End(uint32_t request) {
  Request& ending = open_.at(request);
  std::vector<std::byte> got = std::exchange(ending.got, {});
  if (ending.state == State::kComing) {
    ending.ended = true;
  } else {
    open_.erase(request);
  }
  return got;
}

StatusOr<ChunkRequests::Request*> ChunkRequests::Find(uint32_t request) {
  const auto it = open_.find(request);
  if (it != open_.end() && it->second.state == State::kComing) return &it->second;
  return InvalidArgument("it answers request {}, which is not waiting for an answer", request);
}

void ChunkRequests::Finish(uint32_t request, State state) {
  Request& finished = open_.at(request);
  finished.state = state;
  if (finished.ended) open_.erase(request);
}

Status ChunkRequests::Take(uint32_t request, std::span<const std::byte> piece) {
  LH_ASSIGN_OR_RETURN(Request* const open, Find(request));
  if (piece.size() > open->bytes - open->taken) {
    return InvalidArgument("expected {} bytes of a chunk, and more came", open->bytes);
  }
  open->taken += piece.size();
  if (!open->ended) open->got.insert(open->got.end(), piece.begin(), piece.end());
  if (open->taken == open->bytes) Finish(request, State::kWhole);
  return absl::OkStatus();
}

Status ChunkRequests::TakeNotHere(uint32_t request) {
  LH_ASSIGN_OR_RETURN(Request* const open, Find(request));
  if (open->taken > 0) {
    return absl::InvalidArgumentError("it has not got a chunk of which it sent a part");
  }
  Finish(request, State::kNotHere);
  return absl::OkStatus();
}

}  // namespace longhaul::worker

// The parameters of a group's stage as its data-parallel replicas see them: whole, in host memory,
// joined from the ranks' shares and cut into shares again.
//
//   std::vector<SharedParameter> whole = joined.Join(of_ranks);   // others read and write these
//   joined.Cut(rank);                                             // of each rank
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codec/thread_pool.h"
#include "worker/stage/group/shares.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class JoinedParameters {
 public:
  // `shares` outlives this object. `threads`: number of threads of Join, the calling one included.
  JoinedParameters(const Shares& shares, size_t threads) : shares_(shares), threads_(threads) {}

  // Joins the ranks' shares into whole parameters, in the stage's order. `of_ranks`:
  // Stage::SharedParameters of each rank; shares that several ranks hold must be equal. This object
  // owns the memory, valid until the next Join.
  std::vector<SharedParameter> Join(std::vector<std::vector<SharedParameter>> of_ranks);
  // Writes rank `rank`'s share of the whole values back into the memory that the rank gave to Join.
  // Ranks may call it concurrently.
  void Cut(uint32_t rank) const;

  uint64_t memory_bytes() const;

 private:
  struct Whole {
    std::vector<float> value, gradient;  // no gradient before the first backward
  };

  const Shares& shares_;
  const size_t threads_;
  std::optional<codec::ThreadPool> pool_;             // set by the first Join
  std::map<std::string, Whole, std::less<>> wholes_;  // by the parameter's name
  std::vector<std::vector<SharedParameter>> of_ranks_;
};

}  // namespace longhaul::worker

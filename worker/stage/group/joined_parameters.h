// The parameters of a group's stage in the form in which data-parallel replicas exchange them:
// whole, in host memory. They are joined from the shares of the ranks, and later cut into shares
// again.
//
//   std::vector<SharedParameter> whole = joined.Join(of_ranks);   // the caller changes the values
//   joined.Cut(rank);                                             // for each rank
//
// Join must not run at the same time as Join or Cut. No call can fail.
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
  // `shares` must outlive this object. `threads`: number of threads that Join uses, including the
  // calling thread.
  JoinedParameters(const Shares& shares, size_t threads) : shares_(shares), threads_(threads) {}

  // Joins the ranks' shares into whole parameters, in the stage's order. `of_ranks`: the result of
  // Stage::SharedParameters on each rank; its spans must stay valid until the last Cut. If several
  // ranks hold the same share, their values must be equal. This object owns the memory of the
  // result, which is valid until the next Join.
  std::vector<SharedParameter> Join(std::vector<std::vector<SharedParameter>> of_ranks);
  // Writes the share of rank `rank` back from the whole values into the memory that this rank gave
  // to Join. Ranks may call it concurrently.
  void Cut(uint32_t rank) const;

  // Bytes of host memory that the whole parameters and gradients take.
  uint64_t memory_bytes() const;

 private:
  struct Whole {
    std::vector<float> value, gradient;  // gradient: empty before a step's first backward
  };

  const Shares& shares_;
  const size_t threads_;
  std::optional<codec::ThreadPool> pool_;             // set by the first Join
  std::map<std::string, Whole, std::less<>> wholes_;  // by the parameter's name
  std::vector<std::vector<SharedParameter>> of_ranks_;
};

}  // namespace longhaul::worker

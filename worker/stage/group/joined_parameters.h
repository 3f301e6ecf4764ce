// The parameters of a group's stage as its replicas see them: whole, in host memory, put together
// of the shares that ranks hold, and cut into these again.
//
//   std::vector<SharedParameter> whole = joined.Join(of_ranks);   // others read and write these
//   joined.Cut(rank);                                             // of each rank
#ifndef LONGHAUL_WORKER_STAGE_GROUP_JOINED_PARAMETERS_H_
#define LONGHAUL_WORKER_STAGE_GROUP_JOINED_PARAMETERS_H_

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
  // `shares` outlives it. Join uses so many threads, the calling one among them.
  JoinedParameters(const Shares& shares, size_t threads) : shares_(shares), threads_(threads) {}

  // `of_ranks`: what Stage::SharedParameters of each rank gave. What several ranks hold is alike
  // among them. In the order of the stage; memory is that of this object, until the next Join.
  std::vector<SharedParameter> Join(std::vector<std::vector<SharedParameter>> of_ranks);
  // Writes what whole values have become into the values that rank `rank` gave. Ranks may do so at
  // the same time.
  void Cut(uint32_t rank) const;

  uint64_t memory_bytes() const;

 private:
  struct Whole {
    std::vector<float> value, gradient;  // no gradient before the first backward
  };

  const Shares& shares_;
  const size_t threads_;
  std::optional<codec::ThreadPool> pool_;             // from the first Join on
  std::map<std::string, Whole, std::less<>> wholes_;  // by the parameter's name
  std::vector<std::vector<SharedParameter>> of_ranks_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_JOINED_PARAMETERS_H_

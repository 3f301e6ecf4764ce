// Arrays of a checkpoint, cut into the shares of ranks and put together again. Pure.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_SHARES_H_
#define LONGHAUL_WORKER_STAGE_GROUP_SHARES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "run/model/family.h"
#include "run/model/share.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// The parameters of a stage, and which part of each a rank has.
class Shares {
 public:
  // kInvalidArgument: so many ranks cannot share this model.
  static StatusOr<Shares> Of(const ModelSpec& spec,
                             const std::vector<model::PlacedParameter>& parameters,
                             const model::Ranks& ranks);

  // Of what all ranks' stages gave, by rank: whole arrays.
  StageSnapshot Join(std::span<const StageSnapshot> parts) const;
  // What rank `rank` has of it. kFailedPrecondition naming an array that has another shape than its
  // parameter. Arrays that are not of this stage are left out.
  StatusOr<StageSnapshot> Cut(const StageSnapshot& whole, uint32_t rank) const;
  // What rank `rank` has of one parameter, out of it and into it.
  void Cut(std::string_view parameter, std::span<const float> whole, uint32_t rank,
           std::span<float> share) const;
  void Join(std::string_view parameter, std::span<const float> share, uint32_t rank,
            std::span<float> whole) const;
  // Of a parameter of this stage: its shape, and its place in the stage's order.
  std::vector<int64_t> WholeShape(std::string_view parameter) const;
  size_t PlaceOf(std::string_view parameter) const;

 private:
  struct Shared {
    model::Parameter parameter;
    size_t place = 0;  // in the stage's order
    std::vector<model::Share> of_rank;
  };
  // Of a parameter, or of a moment of its optimizer, which is called "<parameter>.<moment>". Null:
  // of neither, as of what replicas remember.
  const Shared* Find(std::string_view array) const;
  const Shared& Get(std::string_view parameter) const;
  std::vector<NamedArray> JoinArrays(std::span<const StageSnapshot> parts,
                                     std::vector<NamedArray> StageSnapshot::*arrays) const;

  std::unordered_map<std::string, Shared> shared_;  // by the parameter's name
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_SHARES_H_

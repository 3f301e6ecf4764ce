// Cuts arrays of a checkpoint into the shares of a group's ranks, and joins shares again. Pure
// functions, thread-safe. A name that belongs to no parameter of the stage ends the process, unless
// a comment says otherwise.
#pragma once

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

// The parameters of a stage, and each rank's share of each parameter.
class Shares {
 public:
  // `parameters`: all parameters of the stage, in its order. `ranks`: how the group splits the
  // model. kInvalidArgument: the model cannot be split over this number of ranks.
  static StatusOr<Shares> Of(const ModelSpec& spec,
                             const std::vector<model::PlacedParameter>& parameters,
                             const model::Ranks& ranks);

  // Joins the snapshots of all ranks, ordered by rank, into a snapshot with whole arrays.
  StageSnapshot Join(std::span<const StageSnapshot> parts) const;
  // Returns the share of rank `rank` of the snapshot `whole`. Leaves out arrays that belong to no
  // parameter of this stage. kFailedPrecondition: an array does not have the shape of its
  // parameter; the message names it.
  StatusOr<StageSnapshot> Cut(const StageSnapshot& whole, uint32_t rank) const;
  // Cut copies the share of rank `rank` out of one whole parameter; Join copies the share into the
  // whole parameter. `whole` and `share` must have the sizes of parameter and share, row-major.
  void Cut(std::string_view parameter, std::span<const float> whole, uint32_t rank,
           std::span<float> share) const;
  void Join(std::string_view parameter, std::span<const float> share, uint32_t rank,
            std::span<float> whole) const;
  // WholeShape returns the shape of a whole parameter; PlaceOf its position in the stage's order,
  // from 1.
  std::vector<int64_t> WholeShape(std::string_view parameter) const;
  size_t PlaceOf(std::string_view parameter) const;

 private:
  struct Shared {
    model::Parameter parameter;
    size_t place = 0;  // position in the stage's order, from 1
    std::vector<model::Share> of_rank;
  };
  // Returns the parameter that an array belongs to, as its values or as its optimizer state
  // ("<parameter>.<moment>"). Null: none, as for the state of replicas.
  const Shared* Find(std::string_view array) const;
  const Shared& Get(std::string_view parameter) const;
  std::vector<NamedArray> JoinArrays(std::span<const StageSnapshot> parts,
                                     std::vector<NamedArray> StageSnapshot::*arrays) const;

  std::unordered_map<std::string, Shared> shared_;  // by the parameter's name
};

}  // namespace longhaul::worker

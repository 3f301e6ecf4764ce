// Cuts arrays of a checkpoint into the shares of ranks, and joins them. Pure.
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

// A stage's parameters, and every rank's part of each.
class Shares {
 public:
  // kInvalidArgument: the model cannot be split over this number of ranks.
  static StatusOr<Shares> Of(const ModelSpec& spec,
                             const std::vector<model::PlacedParameter>& parameters,
                             const model::Ranks& ranks);

  // Joins the snapshots of all ranks, given by rank, into whole arrays.
  StageSnapshot Join(std::span<const StageSnapshot> parts) const;
  // Rank `rank`'s part of a snapshot. Ignores arrays that are not of this stage.
  // kFailedPrecondition names an array whose shape is not its parameter's.
  StatusOr<StageSnapshot> Cut(const StageSnapshot& whole, uint32_t rank) const;
  // Copy rank `rank`'s share of one parameter out of the whole (Cut) and into it (Join).
  void Cut(std::string_view parameter, std::span<const float> whole, uint32_t rank,
           std::span<float> share) const;
  void Join(std::string_view parameter, std::span<const float> share, uint32_t rank,
            std::span<float> whole) const;
  // The whole shape of a parameter of this stage, and its index in the stage's order.
  std::vector<int64_t> WholeShape(std::string_view parameter) const;
  size_t PlaceOf(std::string_view parameter) const;

 private:
  struct Shared {
    model::Parameter parameter;
    size_t place = 0;  // index in the stage's order
    std::vector<model::Share> of_rank;
  };
  // Finds the parameter of an array that is a parameter or its optimizer state
  // ("<parameter>.<moment>"). Null: neither, for example the state of replicas.
  const Shared* Find(std::string_view array) const;
  const Shared& Get(std::string_view parameter) const;
  std::vector<NamedArray> JoinArrays(std::span<const StageSnapshot> parts,
                                     std::vector<NamedArray> StageSnapshot::*arrays) const;

  std::unordered_map<std::string, Shared> shared_;  // by the parameter's name
};

}  // namespace longhaul::worker

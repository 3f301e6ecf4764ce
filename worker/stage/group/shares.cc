#include "worker/stage/group/shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/stage/optimizer/optimizer.h"

namespace longhaul::worker {
namespace {

std::vector<int64_t> ShapeOf(const model::Parameter& parameter) {
  std::vector<int64_t> shape = {parameter.shape.rows};
  if (parameter.shape.is_matrix()) shape.push_back(parameter.shape.columns);
  return shape;
}

std::vector<int64_t> ShapeOf(const model::Parameter& parameter, const model::Share& share) {
  std::vector<int64_t> shape = ShapeOf(parameter);
  int64_t& split = shape[parameter.split.along == model::Along::kColumns ? 1 : 0];
  split = 0;
  for (const model::Range& range : share.ranges) split += range.end - range.begin;
  return shape;
}

// Copies a rank's `values` of a parameter to their places in `whole`.
void Place(const model::Parameter& parameter, const model::Share& share,
           std::span<const float> values, std::span<float> whole) {
  for (const auto& [first, count] : model::StretchesOf(parameter, share)) {
    std::ranges::copy(values.first(count), whole.subspan(first, count).begin());
    values = values.subspan(count);
  }
  LH_CHECK(values.empty(), "a share of {} is {} values too large", parameter.name, values.size());
}

}  // namespace

StatusOr<Shares> Shares::Of(const ModelSpec& spec,
                            const std::vector<model::PlacedParameter>& parameters,
                            const model::Ranks& ranks) {
  Shares shares;
  for (const model::PlacedParameter& placed : parameters) {
    Shared& shared = shares.shared_[placed.Name()];
    shared.parameter = placed.parameter;
    shared.place = shares.shared_.size();
    for (uint32_t rank = 0; rank < ranks.count; ++rank) {
      LH_ASSIGN_OR_RETURN(shared.of_rank.emplace_back(),
                          model::ShareOf(spec, placed.parameter, rank, ranks));
    }
  }
  return shares;
}

const Shares::Shared* Shares::Find(std::string_view array) const {
  auto it = shared_.find(std::string(array));
  for (const std::string_view moment : {kExpAvg, kExpAvgSq, kMomentum}) {
    if (it != shared_.end()) break;
    if (!array.ends_with(moment)) continue;
    it = shared_.find(std::string(array.substr(0, array.size() - moment.size())));
  }
  return it == shared_.end() ? nullptr : &it->second;
}

const Shares::Shared& Shares::Get(std::string_view parameter) const {
  const auto it = shared_.find(std::string(parameter));
  LH_CHECK(it != shared_.end(), "{} is no parameter of this stage", parameter);
  return it->second;
}

std::vector<int64_t> Shares::WholeShape(std::string_view parameter) const {
  return ShapeOf(Get(parameter).parameter);
}

size_t Shares::PlaceOf(std::string_view parameter) const {
  return Get(parameter).place;
}

std::vector<NamedArray> Shares::JoinArrays(std::span<const StageSnapshot> parts,
                                           std::vector<NamedArray> StageSnapshot::*arrays) const {
  struct Whole {
    const Shared* shared;
    NamedArray array;
  };
  std::vector<Whole> wholes;
  std::unordered_map<std::string_view, size_t> places;  // of names in `wholes`
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    for (const NamedArray& part : parts[rank].*arrays) {
      const Shared* const shared = Find(part.name);
      LH_CHECK(shared != nullptr, "{} is of no parameter", part.name);
      const auto [place, is_new] = places.try_emplace(part.name, wholes.size());
      if (is_new) {
        wholes.push_back({shared, {part.name, ShapeOf(shared->parameter), {}}});
        wholes.back().array.values.resize(shared->parameter.shape.elements());
      }
      Place(shared->parameter, shared->of_rank[rank], part.values,
            wholes[place->second].array.values);
    }
  }
  // In the order of a stage with one rank, so that a checkpoint fits any number of ranks. Muon has
  // the momenta of its matrices before AdamW's state of the others (optimizer/muon.h).
  std::ranges::stable_sort(wholes, {}, [](const Whole& whole) {
    return std::pair(!whole.array.name.ends_with(kMomentum), whole.shared->place);
  });
  std::vector<NamedArray> joined;
  for (Whole& whole : wholes) joined.push_back(std::move(whole.array));
  return joined;
}

StageSnapshot Shares::Join(std::span<const StageSnapshot> parts) const {
  StageSnapshot whole;
  whole.step = parts.front().step;
  for (const auto arrays : {&StageSnapshot::parameters, &StageSnapshot::moments}) {
    whole.*arrays = JoinArrays(parts, arrays);
  }
  return whole;
}

StatusOr<StageSnapshot> Shares::Cut(const StageSnapshot& whole, uint32_t rank) const {
  StageSnapshot part;
  part.step = whole.step;
  for (const auto arrays : {&StageSnapshot::parameters, &StageSnapshot::moments}) {
    for (const NamedArray& array : whole.*arrays) {
      const Shared* const shared = Find(array.name);
      if (shared == nullptr) continue;
      const model::Parameter& parameter = shared->parameter;
      if (array.shape != ShapeOf(parameter) || array.values.size() != parameter.shape.elements()) {
        return FailedPrecondition(
            "expected {} of shape ({}), but the checkpoint has ({}); it is of another model",
            array.name, fmt::join(ShapeOf(parameter), ", "), fmt::join(array.shape, ", "));
      }
      const model::Share& share = shared->of_rank[rank];
      // A rank without a share of this parameter has no array for it.
      if (share.ranges.empty()) continue;
      NamedArray cut{array.name, ShapeOf(parameter, share), {}};
      for (const auto& [first, count] : model::StretchesOf(parameter, share)) {
        const float* const from = array.values.data() + first;
        cut.values.insert(cut.values.end(), from, from + count);
      }
      (part.*arrays).push_back(std::move(cut));
    }
  }
  return part;
}

void Shares::Cut(std::string_view parameter, std::span<const float> whole, uint32_t rank,
                 std::span<float> share) const {
  const Shared& shared = Get(parameter);
  for (const auto& [first, count] : model::StretchesOf(shared.parameter, shared.of_rank[rank])) {
    std::ranges::copy(whole.subspan(first, count), share.begin());
    share = share.subspan(count);
  }
  LH_CHECK(share.empty(), "a share of {} is {} values too large", parameter, share.size());
}

void Shares::Join(std::string_view parameter, std::span<const float> share, uint32_t rank,
                  std::span<float> whole) const {
  const Shared& shared = Get(parameter);
  Place(shared.parameter, shared.of_rank[rank], share, whole);
}

}  // namespace longhaul::worker

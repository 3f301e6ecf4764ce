#include "transport/replicas/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/hash.h"

namespace longhaul::replicas {
namespace {

constexpr uint64_t kPieceAlignment = 64;

Status Check(std::span<const ReplicatedParameter> parameters, const LayoutOptions& options) {
  if (options.replicas == 0 || options.replicas > kMostReplicas) {
    return InvalidArgument("a run has from 1 to {} replicas, not {}", kMostReplicas,
                           options.replicas);
  }
  if (options.bucket_elements < kUnit || options.bucket_elements > kMostBucketElements) {
    return InvalidArgument("a bucket has from {} to {} elements, not {}", kUnit,
                           kMostBucketElements, options.bucket_elements);
  }
  std::set<std::string_view> names;
  for (const ReplicatedParameter& parameter : parameters) {
    if (!names.insert(parameter.name).second) {
      return InvalidArgument("parameter '{}' is given twice", parameter.name);
    }
    if (parameter.elements == 0) {
      return InvalidArgument("parameter '{}' has no elements", parameter.name);
    }
    if (parameter.whole && parameter.elements > kMostBucketElements) {
      return InvalidArgument(
          "parameter '{}' of {} elements must have one owner, and a bucket has at most {}",
          parameter.name, parameter.elements, kMostBucketElements);
    }
  }
  return absl::OkStatus();
}

uint64_t Fingerprint(std::span<const ReplicatedParameter> parameters,
                     const LayoutOptions& options) {
  std::string text = fmt::format("1 {} {} {} {}\n", options.replicas, ToString(options.gradients),
                                 ToString(options.parameters), options.bucket_elements);
  for (const ReplicatedParameter& parameter : parameters) {
    text += fmt::format("{} {} {} {}\n", parameter.name, parameter.elements,
                        parameter.may_be_sparse ? 1 : 0, parameter.whole ? 1 : 0);
  }
  return Checksum64(std::as_bytes(std::span(text)));
}

}  // namespace

std::vector<Piece> Shard::pieces() const {
  std::vector<Piece> all = dense;
  all.insert(all.end(), sparse.begin(), sparse.end());
  return all;
}

StatusOr<Layout> Layout::Make(std::vector<ReplicatedParameter> parameters,
                              const LayoutOptions& options) {
  LH_RETURN_IF_ERROR(Check(parameters, options));
  Layout layout;
  layout.options_ = options;
  layout.parameters_ = std::move(parameters);
  layout.fingerprint_ = Fingerprint(layout.parameters_, options);
  layout.owned_.resize(options.replicas);
  layout.Fill();
  return layout;
}

bool Layout::IsSparse(uint32_t parameter) const {
  return options_.gradients.form == GradientForm::kTagc && parameters_[parameter].may_be_sparse &&
         parameters_[parameter].elements >= options_.gradients.least;
}

void Layout::Fill() {
  uint64_t room = 0;
  for (uint32_t k = 0; k < parameters_.size(); ++k) {
    const ReplicatedParameter& parameter = parameters_[k];
    for (uint64_t first = 0; first < parameter.elements;) {
      if (room == 0) {
        buckets_.emplace_back().shards.resize(options_.replicas);
        room = options_.bucket_elements;
      }
      uint64_t count = parameter.elements - first;
      // Cut at whole units alone.
      if (!parameter.whole && count > room)
        count = std::min(count, (room + kUnit - 1) / kUnit * kUnit);
      AddToBucket(k, first, count);
      first += count;
      room -= std::min(room, count);
    }
  }
}

// The replica that owns least; those with their bit in `skip` do not count.
uint32_t Layout::LeastLoaded(uint64_t skip) const {
  uint32_t least = options_.replicas;
  for (uint32_t owner = 0; owner < options_.replicas; ++owner) {
    if ((skip >> owner & 1) != 0) continue;
    if (least == options_.replicas || owned_[owner] < owned_[least]) least = owner;
  }
  return least;
}

void Layout::AddToBucket(uint32_t parameter, uint64_t first, uint64_t count) {
  buckets_.back().parameters.push_back(parameter);
  const uint64_t units = count / kUnit;
  if (parameters_[parameter].whole || units < options_.replicas) {
    AddPiece(LeastLoaded(0), parameter, first, count);
    return;
  }
  // Equally many units for all, and the units that are over for those that own least. What is no
  // whole unit goes to the last replica, whose piece alone can end within one.
  std::vector<uint64_t> counts(options_.replicas, units / options_.replicas * kUnit);
  uint64_t served = 0;
  for (uint64_t over = units % options_.replicas; over > 0; --over) {
    const uint32_t owner = LeastLoaded(served);
    served |= uint64_t{1} << owner;
    counts[owner] += kUnit;
  }
  counts.back() += count % kUnit;
  for (uint32_t owner = 0; owner < options_.replicas; ++owner) {
    AddPiece(owner, parameter, first, counts[owner]);
    first += counts[owner];
  }
}

void Layout::AddPiece(uint32_t owner, uint32_t parameter, uint64_t first, uint64_t count) {
  Shard& shard = buckets_.back().shards[owner];
  std::vector<Piece>& pieces = IsSparse(parameter) ? shard.sparse : shard.dense;
  const uint64_t at = pieces.empty()
                          ? 0
                          : (pieces.back().at + pieces.back().count + kPieceAlignment - 1) /
                                kPieceAlignment * kPieceAlignment;
  pieces.push_back({parameter, first, count, at});
  if (&pieces == &shard.sparse) shard.positions = at + count;
  owned_[owner] += count;
}

}  // namespace longhaul::replicas

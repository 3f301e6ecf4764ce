#include "worker/stage/group/joined_parameters.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace longhaul::worker {

std::vector<SharedParameter> JoinedParameters::Join(
    std::vector<std::vector<SharedParameter>> of_ranks) {
  of_ranks_ = std::move(of_ranks);
  struct ShareOfRank {
    uint32_t rank = 0;
    const SharedParameter* share = nullptr;
  };
  struct Joined {
    SharedParameter whole;
    std::vector<ShareOfRank> shares;  // in the order of ranks
  };
  std::map<std::string_view, Joined> joined;
  for (uint32_t rank = 0; rank < of_ranks_.size(); ++rank) {
    for (const SharedParameter& share : of_ranks_[rank]) {
      Whole& whole = wholes_[share.name];
      const auto [found, is_new] = joined.try_emplace(share.name);
      SharedParameter& one = found->second.whole;
      if (is_new) {
        one = share;
        one.shape = shares_.WholeShape(share.name);
        size_t elements = 1;
        for (const int64_t size : one.shape) elements *= static_cast<size_t>(size);
        whole.value.resize(elements);
        whole.gradient.resize(share.gradient.empty() ? 0 : elements);
        one.value = whole.value;
        one.gradient = whole.gradient;
      }
      // Several ranks may hold the same numbers; one of them counts these for the stage.
      one.counted_elsewhere &= share.counted_elsewhere;
      LH_CHECK(share.gradient.empty() == whole.gradient.empty(),
               "some ranks have a gradient of {}, others have none", share.name);
      found->second.shares.push_back({rank, &share});
    }
  }
  std::vector<const Joined*> all;
  for (const auto& [name, one] : joined) all.push_back(&one);
  if (!pool_) pool_.emplace(threads_);
  pool_->For(all.size(), [&](size_t k) {
    Whole& whole = wholes_.find(all[k]->whole.name)->second;
    for (const auto& [rank, share] : all[k]->shares) {
      shares_.Join(share->name, share->value, rank, whole.value);
      if (!share->gradient.empty())
        shares_.Join(share->name, share->gradient, rank, whole.gradient);
    }
  });
  std::vector<SharedParameter> ordered;
  for (auto& [name, one] : joined) ordered.push_back(std::move(one.whole));
  std::ranges::sort(ordered, {},
                    [this](const SharedParameter& one) { return shares_.PlaceOf(one.name); });
  return ordered;
}

void JoinedParameters::Cut(uint32_t rank) const {
  for (const SharedParameter& share : of_ranks_[rank]) {
    shares_.Cut(share.name, wholes_.find(share.name)->second.value, rank, share.value);
  }
}

uint64_t JoinedParameters::memory_bytes() const {
  uint64_t numbers = 0;
  for (const auto& [name, whole] : wholes_) numbers += whole.value.size() + whole.gradient.size();
  return numbers * sizeof(float);
}

}  // namespace longhaul::worker

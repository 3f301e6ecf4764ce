#include "worker/stage/group/tied_shares.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace longhaul::worker {
namespace {

class TiedShares final : public TiedMatrix {
 public:
  TiedShares(std::vector<TiedMatrix*> of_ranks, OnAllRanks run)
      : ranks_(std::move(of_ranks)), run_(std::move(run)) {
    for (const TiedMatrix* const rank : ranks_) {
      begins_.push_back(rows_);
      rows_ += rank->rows();
    }
  }

  const std::string& name() const override { return ranks_[0]->name(); }
  uint32_t rows() const override { return rows_; }
  uint32_t channels() const override { return ranks_[0]->channels(); }

  Status ReadGradient(std::span<const int32_t> rows, std::span<float> values) override {
    return run_([&](uint32_t rank) -> Status {
      const Own own = OwnOf(rank, rows);
      if (own.rows.empty()) return absl::OkStatus();
      return ranks_[rank]->ReadGradient(
          own.rows, values.subspan(own.first * channels(), own.rows.size() * channels()));
    });
  }
  Status AddToGradient(std::span<const int32_t> rows, std::span<const float> values) override {
    return run_([&](uint32_t rank) -> Status {
      const Own own = OwnOf(rank, rows);
      if (own.rows.empty()) return absl::OkStatus();
      return ranks_[rank]->AddToGradient(
          own.rows, values.subspan(own.first * channels(), own.rows.size() * channels()));
    });
  }

 private:
  // The rows that a rank holds, counted from its first one, and the place of the first in the call.
  struct Own {
    std::vector<int32_t> rows;
    size_t first = 0;
  };
  Own OwnOf(uint32_t rank, std::span<const int32_t> rows) const {
    const auto begin = static_cast<int32_t>(begins_[rank]);
    const auto end = begin + static_cast<int32_t>(ranks_[rank]->rows());
    const auto first = std::ranges::lower_bound(rows, begin);
    Own own{.rows = {}, .first = static_cast<size_t>(first - rows.begin())};
    for (auto row = first; row != rows.end() && *row < end; ++row) own.rows.push_back(*row - begin);
    return own;
  }

  const std::vector<TiedMatrix*> ranks_;
  const OnAllRanks run_;
  std::vector<uint32_t> begins_;
  uint32_t rows_ = 0;
};

}  // namespace

std::unique_ptr<TiedMatrix> JoinTied(std::vector<TiedMatrix*> of_ranks, OnAllRanks run) {
  if (std::ranges::find(of_ranks, nullptr) != of_ranks.end()) return nullptr;
  return std::make_unique<TiedShares>(std::move(of_ranks), std::move(run));
}

}  // namespace longhaul::worker

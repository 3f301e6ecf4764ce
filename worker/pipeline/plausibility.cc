#include "worker/pipeline/plausibility.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace longhaul::worker {
namespace {

constexpr double kWeight = 1.0 / 32;  // of a new tensor
constexpr double kDeviations = 8;     // standard deviations that are usual
constexpr double kLeastLogNorm = 3;   // a norm within a factor of 8 is always usual
constexpr double kLeastCosine = 0.5;
constexpr double kOpposite = 1.4;
constexpr double kSmallestNorm = 1e-30;
constexpr double kLeastNonfinite = 0.01;

}  // namespace

double Plausibility::Follower::Beyond(double value, double least) const {
  const double limit = std::max(least, kDeviations * std::sqrt(variance));
  return std::max(0.0, std::abs(value - mean) - limit);
}

void Plausibility::Follower::Learn(double value, uint64_t before) {
  const double weight = std::max(kWeight, 1.0 / static_cast<double>(before + 1));
  const double difference = value - mean;
  mean += weight * difference;
  variance = (1 - weight) * (variance + weight * difference * difference);
}

std::vector<size_t> Plausibility::DrawRows(size_t rows) {
  std::vector<size_t> drawn;
  const size_t count = std::min(rows, kRows);
  // One row of each of `count` equal parts: ascending, and no row twice.
  for (size_t part = 0; part < count; ++part) {
    const size_t begin = part * rows / count, end = (part + 1) * rows / count;
    drawn.push_back(begin + random_() % (end - begin));
  }
  return drawn;
}

std::optional<std::string> Plausibility::Judge(std::span<const float> values, size_t channels) {
  if (channels == 0 || values.size() < channels) return std::nullopt;
  // Rows count alike, because a few tokens may have far larger activations than all others.
  std::vector<double> mean(channels), norms;
  size_t infinite = 0;
  for (size_t first = 0; first + channels <= values.size(); first += channels) {
    const std::span<const float> row = values.subspan(first, channels);
    double squares = 0;
    for (const float value : row) {
      if (std::isfinite(value)) {
        squares += double{value} * value;
      } else {
        ++infinite;
      }
    }
    norms.push_back(std::sqrt(squares));
    if (squares <= 0) continue;
    for (size_t i = 0; i < channels; ++i) {
      if (std::isfinite(row[i])) mean[i] += row[i] / norms.back();
    }
  }
  const double share = static_cast<double>(infinite) / static_cast<double>(values.size());
  const auto middle = norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2);
  std::ranges::nth_element(norms, middle);
  // A tensor of zeros has the smallest norm.
  const double log_norm = std::log2(std::max(*middle, kSmallestNorm));
  double length = 0, product = 0, mean_length = 0;
  mean_row_.resize(channels);
  for (size_t i = 0; i < channels; ++i) {
    length += mean[i] * mean[i];
    product += mean[i] * mean_row_[i];
    mean_length += mean_row_[i] * mean_row_[i];
  }
  const double lengths = std::sqrt(length * mean_length);
  const double cosine = lengths > 0 ? product / lengths : 0;

  std::optional<std::string> what;
  double learnt_norm = log_norm, learnt_cosine = cosine;
  if (seen_ >= kLearning) {
    if (const double beyond = log_norm_.Beyond(log_norm, kLeastLogNorm); beyond > 0) {
      what =
          fmt::format("its norm is {:.3g} times the usual", std::exp2(log_norm - log_norm_.mean));
      learnt_norm += log_norm > log_norm_.mean ? -beyond : beyond;
    }
    // Honest tensors may be at right angles to the mean. None is opposite to it.
    const double least = std::max(kLeastCosine, kOpposite * cosine_.mean);
    if (const double beyond = cosine_.Beyond(cosine, least); beyond > 0 && cosine < cosine_.mean) {
      if (!what) {
        what = fmt::format("its cosine to the mean is {:.2f}, where {:.2f} is usual", cosine,
                           cosine_.mean);
      }
      learnt_cosine += beyond;
    }
    if (!what && nonfinite_.Beyond(share, kLeastNonfinite) > 0 && share > nonfinite_.mean) {
      what = fmt::format("{:.3g} % of its values are not finite, where {:.3g} % is usual",
                         100 * share, 100 * nonfinite_.mean);
    }
  }
  if (what) {
    // Whoever repeats a lie does not make it plausible soon: spreads stay as they are.
    log_norm_.mean += kWeight * kWeight * (learnt_norm - log_norm_.mean);
    cosine_.mean += kWeight * kWeight * (learnt_cosine - cosine_.mean);
  } else {
    log_norm_.Learn(log_norm, seen_);
    // The first tensors' cosines are those to few others.
    if (seen_ >= kLearning / 4) cosine_.Learn(cosine, seen_ - kLearning / 4);
    nonfinite_.Learn(share, seen_);
  }
  ++seen_;
  if (length > 0 && !what) {
    const double scale = kWeight / std::sqrt(length);
    for (size_t i = 0; i < channels; ++i)
      mean_row_[i] = (1 - kWeight) * mean_row_[i] + scale * mean[i];
  }
  return what;
}

std::shared_ptr<Plausibility> SenderBook::Of(const RunId& run, EdgeId edge) {
  const std::lock_guard lock(mutex_);
  if (run != run_) {
    run_ = run;
    senders_.clear();
  }
  std::shared_ptr<Plausibility>& of_edge = senders_[edge];
  if (of_edge == nullptr) of_edge = std::make_shared<Plausibility>(std::random_device()());
  return of_edge;
}

}  // namespace longhaul::worker

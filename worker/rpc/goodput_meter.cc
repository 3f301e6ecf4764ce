#include "worker/rpc/goodput_meter.h"

#include <algorithm>

namespace longhaul::worker {
namespace {

constexpr absl::Duration kBin = absl::Milliseconds(50);
constexpr absl::Duration kSteadyFor = absl::Milliseconds(250);
constexpr double kAgreement = 1.03;  // of the largest bin to the smallest

}  // namespace

GoodputMeter::GoodputMeter(absl::Duration round_trip) : bin_(std::max(kBin, round_trip)) {}

void GoodputMeter::Arrived(size_t bytes, MonoTime now) {
  if (done_) return;
  if (arrivals_.empty()) {
    arrivals_.push_back({now, 0});
    edges_.push_back(0);
    return;
  }
  arrivals_.push_back({now, arrivals_.back().bytes + bytes});
  const size_t last = arrivals_.size() - 1;
  if (now - arrivals_[edges_.back()].at >= bin_) {
    edges_.push_back(last);
    CheckSteady();
  }
  done_ = steady_ || arrivals_[last].bytes + bytes >= kMaxBytes ||
          now - arrivals_.front().at >= kMaxTime;
}

void GoodputMeter::CheckSteady() {
  double smallest = 0, largest = 0;
  for (size_t i = edges_.size() - 1; i > 0; --i) {
    const double rate = Rate(edges_[i - 1], edges_[i]);
    smallest = smallest == 0 ? rate : std::min(smallest, rate);
    largest = std::max(largest, rate);
    if (largest > kAgreement * smallest) return;
    steady_from_ = edges_[i - 1];
    steady_ = edges_.size() - i >= 3 &&
              arrivals_.back().at - arrivals_[steady_from_].at >= kSteadyFor;
    if (steady_) return;
  }
}

double GoodputMeter::Rate(size_t first, size_t last) const {
  const absl::Duration time = arrivals_[last].at - arrivals_[first].at;
  if (time <= absl::ZeroDuration()) return 0;
  return 8.0 * static_cast<double>(arrivals_[last].bytes - arrivals_[first].bytes) /
         absl::ToDoubleSeconds(time);
}

double GoodputMeter::BitsPerSecond() const {
  if (arrivals_.size() < 2) return 0;
  const size_t last = arrivals_.size() - 1;
  if (steady_) return Rate(steady_from_, last);
  const MonoTime middle =
      arrivals_.front().at + (arrivals_.back().at - arrivals_.front().at) / 2;
  size_t first = 0;
  while (first + 1 < last && arrivals_[first].at < middle) ++first;
  return Rate(first, last);
}

}  // namespace longhaul::worker

#include "worker/rpc/goodput_meter.h"

#include <algorithm>
#include <array>

namespace longhaul::worker {
namespace {

constexpr absl::Duration kLeastTime = absl::Milliseconds(500);
constexpr size_t kEnoughBytes = size_t{16} << 20;  // in less time
constexpr absl::Duration kCheckEvery = absl::Milliseconds(20);
constexpr int kParts = 3;
constexpr double kAgreement = 1.02;  // of the fastest part to the slowest

}  // namespace

GoodputMeter::GoodputMeter(absl::Duration round_trip) : round_trip_(round_trip) {}

void GoodputMeter::Arrived(size_t bytes, MonoTime now) {
  if (done_) return;
  if (arrivals_.empty()) {
    arrivals_.push_back({now, 0});
    check_at_ = now + kCheckEvery;
    return;
  }
  arrivals_.push_back({now, arrivals_.back().bytes + bytes});
  if (now >= check_at_) {
    check_at_ = now + kCheckEvery;
    // TCP may have taken a while to get up to speed.
    for (const double share : {0.75, 0.5}) {
      if (!steady_) steady_ = CheckSteady(share);
    }
  }
  done_ = steady_ || arrivals_.back().bytes >= kMaxBytes || now - arrivals_.front().at >= kMaxTime;
}

// The newest `share` of the time so far.
bool GoodputMeter::CheckSteady(double share) {
  const absl::Duration time = share * (arrivals_.back().at - arrivals_.front().at);
  const MonoTime begin = arrivals_.back().at + -time;
  const size_t bytes = arrivals_.back().bytes - arrivals_[At(begin)].bytes;
  if (time / kParts < round_trip_ || (time < kLeastTime && bytes < kEnoughBytes)) return false;
  std::array<double, kParts> rates{};
  for (int part = 0; part < kParts; ++part) {
    rates[static_cast<size_t>(part)] =
        Rate(At(begin + part * (time / kParts)), At(begin + (part + 1) * (time / kParts)));
  }
  const auto [slowest, fastest] = std::minmax_element(rates.begin(), rates.end());
  if (*fastest > kAgreement * *slowest) return false;
  steady_from_ = At(begin);
  return true;
}

// The last arrival that was not later.
size_t GoodputMeter::At(MonoTime time) const {
  const auto after = std::upper_bound(arrivals_.begin(), arrivals_.end(), time,
                                      [](MonoTime t, const Arrival& a) { return t < a.at; });
  return after == arrivals_.begin() ? 0 : static_cast<size_t>(after - arrivals_.begin()) - 1;
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
  const absl::Duration time = arrivals_[last].at - arrivals_.front().at;
  return Rate(std::min(At(arrivals_.front().at + time / 2), last - 1), last);
}

}  // namespace longhaul::worker

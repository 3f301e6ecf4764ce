#include "worker/measuring/goodput_meter.h"

#include <algorithm>
#include <array>

namespace longhaul::worker {
namespace {

constexpr absl::Duration kLeastTime = absl::Milliseconds(500);
constexpr size_t kLeastBytes = size_t{16} << 20;  // in less time
constexpr absl::Duration kCheckEvery = absl::Milliseconds(20);
constexpr int kParts = 3;
// Shortest part, in round trips: TCP may keep a rate for that long (BBR for eight) before it tries
// a higher one.
constexpr int kPartRoundTrips = 6;
constexpr double kAgreement = 1.02;  // of the fastest part to the slowest
// TCP that has lost packets goes on at a rate as steady as it is low. It has been faster then.
constexpr double kBelowFastest = 0.95;
// A window is that long and has so many round trips; bursts at the beginning are in none.
constexpr absl::Duration kWindow = absl::Milliseconds(100);
constexpr int kWindowRoundTrips = 2;
// In fewer TCP may not have found the rate once.
constexpr int kLeastRoundTrips = 40;

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
    NoteFastest();
    // TCP may have taken a while to get up to speed.
    for (const double share : {0.75, 0.5}) {
      if (!steady_) steady_ = CheckSteady(share);
    }
  }
  const size_t so_far = arrivals_.back().bytes;
  const absl::Duration time = now - arrivals_.front().at;
  done_ = steady_ || time >= kMaxTime || so_far >= kMaxBytes ||
          (so_far >= kEnoughBytes && time >= kLeastRoundTrips * round_trip_);
}

void GoodputMeter::NoteFastest() {
  const absl::Duration window = std::max(kWindow, kWindowRoundTrips * round_trip_);
  const MonoTime begin = arrivals_.back().at + -window;
  if (begin < arrivals_.front().at + kWindow) return;
  fastest_ = std::max(fastest_, Rate(At(begin), arrivals_.size() - 1));
}

// The newest `share` of the time so far.
bool GoodputMeter::CheckSteady(double share) {
  const absl::Duration time = share * (arrivals_.back().at - arrivals_.front().at);
  const MonoTime begin = arrivals_.back().at + -time;
  const size_t bytes = arrivals_.back().bytes - arrivals_[At(begin)].bytes;
  if (time / kParts < kPartRoundTrips * round_trip_ || (time < kLeastTime && bytes < kLeastBytes))
    return false;
  std::array<double, kParts> rates{};
  for (int part = 0; part < kParts; ++part) {
    rates[static_cast<size_t>(part)] =
        Rate(At(begin + part * (time / kParts)), At(begin + (part + 1) * (time / kParts)));
  }
  const auto [slowest, fastest] = std::minmax_element(rates.begin(), rates.end());
  if (*fastest > kAgreement * *slowest || *fastest < kBelowFastest * fastest_) return false;
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
  if (fastest_ > 0) return fastest_;
  const absl::Duration time = arrivals_[last].at - arrivals_.front().at;
  return Rate(std::min(At(arrivals_.front().at + time / 2), last - 1), last);
}

}  // namespace longhaul::worker

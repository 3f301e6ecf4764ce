// How long a sweep still takes: every point at least what its bytes need on its links, and on top
// what points took beyond that so far. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_TIME_LEFT_H_
#define LONGHAUL_DEPLOY_SWEEP_TIME_LEFT_H_

#include <algorithm>
#include <cstddef>
#include <optional>

namespace longhaul::cli {

class TimeLeft {
 public:
  // Of every point that is still to run. `network_seconds`: what its links need for all its steps.
  void AddWaiting(double network_seconds) {
    ++waiting_;
    network_ += network_seconds;
  }
  // It is its turn; the next Ended is this one's.
  void Begin(double network_seconds) {
    waiting_ -= waiting_ > 0 ? 1 : 0;
    network_ = std::max(0.0, network_ - network_seconds);
  }
  // A point took so long.
  void Ended(double network_seconds, double seconds) {
    extra_ += std::max(0.0, seconds - network_seconds);
    ++ended_;
  }
  // `current_seconds`: what the point under way still needs, if known. nullopt: too little is
  // known.
  std::optional<double> Estimate(std::optional<double> current_seconds) const {
    if (!current_seconds || (ended_ == 0 && waiting_ > 0)) return std::nullopt;
    const double extra = ended_ == 0 ? 0 : extra_ / static_cast<double>(ended_);
    return *current_seconds + network_ + extra * static_cast<double>(waiting_);
  }

 private:
  size_t waiting_ = 0, ended_ = 0;
  double network_ = 0, extra_ = 0;
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_TIME_LEFT_H_

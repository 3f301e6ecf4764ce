// Estimates how long a sweep still takes. Every point takes the time that its bytes need on its
// links, and what earlier points took beyond that. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_TIME_LEFT_H_
#define LONGHAUL_DEPLOY_SWEEP_TIME_LEFT_H_

#include <algorithm>
#include <cstddef>
#include <optional>

namespace longhaul::cli {

class TimeLeft {
 public:
  // Adds a point that is still to run. `network_seconds`: the time its links need for all its
  // steps.
  void AddWaiting(double network_seconds) {
    ++waiting_;
    network_ += network_seconds;
  }
  // A point begins; the next Ended belongs to it.
  void Begin(double network_seconds) {
    waiting_ -= waiting_ > 0 ? 1 : 0;
    network_ = std::max(0.0, network_ - network_seconds);
  }
  // The point under way has ended and took `seconds`.
  void Ended(double network_seconds, double seconds) {
    extra_ += std::max(0.0, seconds - network_seconds);
    ++ended_;
  }
  // `current_seconds`: the time that the point under way still needs, if known. Returns nullopt if
  // too little is known.
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

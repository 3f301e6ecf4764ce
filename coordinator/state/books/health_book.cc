#include "coordinator/state/books/health_book.h"

#include <algorithm>

namespace longhaul::coordinator {
namespace {

// More than that do not lengthen the pause.
constexpr size_t kMaxLosses = 32;

}  // namespace

std::optional<HealthBook::Verdict> HealthBook::Lost(const WorkerId& id,
                                                    const Incarnation& incarnation, Fault fault,
                                                    MonoTime now) {
  Record& record = workers_[id];
  if (record.last == incarnation) return std::nullopt;
  record.last = incarnation;
  while (!record.losses.empty() && !IsRecent(record.losses.front(), now)) {
    record.losses.pop_front();
  }
  record.losses.push_back(now);
  if (record.losses.size() > kMaxLosses) record.losses.pop_front();
  const size_t tolerated = fault == Fault::kDeviceLost ? 0 : 1;
  if (record.losses.size() <= tolerated) return std::nullopt;
  Verdict verdict{.losses = static_cast<uint32_t>(record.losses.size()),
                  .within = now - record.losses.front(),
                  .pause = options_.first_pause};
  for (size_t i = tolerated + 1; i < record.losses.size() && verdict.pause < options_.longest_pause;
       ++i) {
    verdict.pause *= 2;
  }
  verdict.pause = std::min(verdict.pause, options_.longest_pause);
  verdict.until = now + verdict.pause;
  record.left_out_until = std::max(record.left_out_until, verdict.until);
  return verdict;
}

void HealthBook::DidWell(const WorkerId& id) {
  const auto found = workers_.find(id);
  if (found != workers_.end()) found->second.losses.clear();
}

bool HealthBook::IsDistrusted(const WorkerId& id) const {
  const auto found = workers_.find(id);
  return found != workers_.end() && found->second.left_out_until == MonoTime::max();
}

std::optional<MonoTime> HealthBook::LeftOutUntil(const WorkerId& id, MonoTime now) const {
  const auto found = workers_.find(id);
  if (found == workers_.end() || found->second.left_out_until <= now) return std::nullopt;
  return found->second.left_out_until;
}

uint32_t HealthBook::Losses(const WorkerId& id, MonoTime now) const {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return 0;
  return static_cast<uint32_t>(std::ranges::count_if(
      found->second.losses, [&](MonoTime loss) { return IsRecent(loss, now); }));
}

MonoTime HealthBook::NextWake(MonoTime now) const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, record] : workers_) {
    if (record.left_out_until > now) wake = std::min(wake, record.left_out_until);
  }
  return wake;
}

}  // namespace longhaul::coordinator

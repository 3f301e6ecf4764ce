#include "coordinator/standby/takeover.h"

#include <algorithm>

namespace longhaul::coordinator {

Verdict Judge(const Contact& contact, MonoTime now) {
  const absl::Duration silence = now - contact.heard;
  if (!contact.whole || silence < kLease) return Verdict::kWait;
  const auto come =
      static_cast<size_t>(std::ranges::count_if(contact.workers, [&](const std::string& id) {
        const auto at = contact.have_come.find(id);
        return at != contact.have_come.end() && now - at->second < kWitnessLasts;
      }));
  if (contact.workers.empty() || 2 * come > contact.workers.size()) return Verdict::kTakeOver;
  return silence < kWorkersCome ? Verdict::kWait : Verdict::kStale;
}

}  // namespace longhaul::coordinator
